# SPDX-License-Identifier: Apache-2.0
"""Random template programs whose expressions are mostly well-typed, for comparing with the reference.

S, I, F, B, L, D and A make expressions that are strings, integers, floats, booleans, lists, dicts, or any of these; d is
the depth reached.
"""
import random

STR = ["","a","abc","Hello World","héllo ñ","日本語テスト","😀x","it's","say \"q\"","both ' \"","  pad \t","line1\nline2\n","a,b,,c","<b>&</b>","x.y.z","ABC","Straße","ΑΣ","\u00a0nb\u3000","12","-3","3.7","1e3"," 42 ","0x1f","tab\there","ünïcode","a b  c","\r\nz","\x1f","fi ﬁ","ǅ","%s-%d","{} {0}","__x__","camelCase-word (x)","İi"]
NUM = [0,1,2,3,-1,5,7,10,-4,255,1000,0.0,1.5,-2.5,0.1,3.14159,1e20,1e-7,2.675,100.0,1e16,123456789,-0.0,0.5,2.5,1234567.891]
FORMATS = ["{:>5}","{:<6}|","{:^7}","{:05d}","{:.2f}","{:,}","{:x}","{:#b}","{!r}","{0} {0}","{:e}","{:g}","{:%}","{:+d}","{:*^9}","{a}","{:.3}","{0[0]}","{:_}","{:08.3f}","{:>+8.1e}","{}{}"]
SPACES = ["","","","\n","  ","\n  "," text ","x\n"]


def context(R):
    c = {
        "s": R.choice(STR), "t": R.choice(STR), "n": R.choice(NUM), "m": R.choice(NUM), "b": R.choice([True, False]), "z": None,
        "l": [R.choice(NUM) for _ in range(R.randint(0, 5))],
        "ls": [R.choice(STR) for _ in range(R.randint(0, 4))],
        "mix": [R.choice([1, "a", None, True, 2.5, [1], {"k": 1}]) for _ in range(R.randint(0, 4))],
        "d": {R.choice(["a", "b", "items", "k", "A", "role", "x y"]): R.choice([1, "v", None, [1, 2], {"q": "w"}, 2.5])
              for _ in range(R.randint(0, 4))},
        "rows": [{"id": i, "name": R.choice(["bob", "Al", "eve", "Bob"]), "tags": R.choice([[], ["x"], ["y", "z"]]),
                  "v": R.choice([1, 2, 2.5, -1])} for i in range(R.randint(0, 4))],
        "nest": {"p": {"q": [1, {"r": "deep"}]}, "e": {}},
        "messages": [{"role": R.choice(["system", "user", "assistant", "tool"]), "content": R.choice(STR)}
                     for _ in range(R.randint(0, 4))],
        "nn": R.choice([0, 1, 5, -2, 42]), "ff": R.choice([0.5, -1.25, 1e10, 3.0]),
        "li": [R.randint(-5, 9) for _ in range(R.randint(0, 5))],
    }
    return c


class Programs:
    def __init__(self, seed):
        R = random.Random(seed)
        def pystr(s):
            out=""
            for c in s:
                if c in "\\'": out+="\\"+c
                elif c=="\n": out+=R.choice(["\\n","\n"])
                elif c=="\r": out+="\\r"
                elif ord(c)<32: out+="\\x%02x"%ord(c)
                else: out+=c
            return "'"+out+"'"
        def S(d=0):
            k=R.random()
            if d>3 or k<.25: return R.choice(["s","t","s","'x'",pystr(R.choice(STR)),"nest.p.q[1].r"])
            if k<.45: return S(d+1)+"|"+R.choice(["upper","lower","title","capitalize","trim","replace('a','b')","replace(' ','_',1)","indent(2)","indent(3,true)","truncate(7)","truncate(5,true,'')","string","center(9)","reverse","tojson","e","escape","default('q')","striptags","urlencode","trim('a ')","safe","indent('>',blank=true)","forceescape","replace('l', n)","join('-')","wordcount|string","length|string","first|default('')","last|default('')","int|string","float|string","list|join('|')","tojson(ensure_ascii=true)"])
            if k<.62: return "("+S(d+1)+")."+R.choice(["upper()","lower()","title()","capitalize()","swapcase()","strip()","lstrip()","rstrip('\\n')","strip('ab ')","replace('a','ä')","zfill(6)","center(8,'é')","ljust(6)","rjust(7,'-')","removeprefix('a')","removesuffix('c')","casefold()","expandtabs(4)","split(',')[-1]","split()[-1:]|join","partition('l')[2]","rsplit(' ',1)[0]","splitlines()|join('/')","rpartition(',')[0]","join(ls)","split('l',1)|join('~')"])
            if k<.70: return "("+S(d+1)+" ~ "+A(d+1)+")"
            if k<.76: return "("+S(d+1)+" + "+S(d+1)+")"
            if k<.80: return "("+S(d+1)+" * "+R.choice(["0","1","2","3"])+")"
            if k<.86: return "("+S(d+1)+")["+R.choice([":","1:",":2","::-1","-1:","1:3",":-1","::2","-3:-1","5:1:-1"])+"]"
            if k<.90: return "("+S(d+1)+" if "+B(d+1)+" else "+S(d+1)+")"
            if k<.94: return R.choice(["'%s' % ","'%5s|' % ","'%-6s|' % ","'%r' % ","'%.2s' % "])+"("+S(d+1)+",)"
            if k<.97: return R.choice(["'%d' % ","'%05d' % ","'%.2f' % ","'%x' % ","'%e' % ","'%g' % ","'%+d' % ","'%8.3f|' % "])+"("+I(d+1)+",)"
            return "'"+R.choice(FORMATS)+"'.format("+R.choice([I(d+1),S(d+1),F(d+1),L(d+1)])+",a=2)"
        def I(d=0):
            k=R.random()
            if d>3 or k<.3: return R.choice(["0","1","2","7","10","-3","255","1_000","0x1f","0b11","0o17","nn"])
            if k<.45: return "("+R.choice([S,L,D])(d+1)+")|"+R.choice(["length","count"])
            if k<.6: return "("+I(d+1)+" "+R.choice(["+","-","*"])+" "+I(d+1)+")"
            if k<.68: return "("+I(d+1)+" "+R.choice(["//","%"])+" "+R.choice(["2","3","-4","7"])+")"
            if k<.74: return "("+I(d+1)+"|abs)"
            if k<.8: return "("+S(d+1)+")."+R.choice(["find('a')","rfind('l')","count('a')","count('')","find('é')"])
            if k<.85: return "(-"+I(d+1)+")"
            if k<.9: return "("+R.choice([S,F])(d+1)+"|int)"
            if k<.95: return "("+LI(d+1)+"|sum)"
            return "("+I(d+1)+" if "+B(d+1)+" else "+I(d+1)+")"
        def F(d=0):
            k=R.random()
            if d>3 or k<.35: return R.choice(["1.5","0.1","2.675","1e16","1e-7","-2.5","3.0","1e22","123456.789","ff"])
            if k<.6: return "("+R.choice([I,F])(d+1)+" "+R.choice(["/","+","-","*"])+" "+R.choice(["2.0","3.3","0.1","-1.5","7.0"])+")"
            if k<.75: return "("+F(d+1)+"|round"+R.choice(["","(1)","(2)","(0,'ceil')","(1,'floor')","(3)"])+")"
            if k<.85: return "("+I(d+1)+"|float)"
            if k<.93: return "("+F(d+1)+"|abs)"
            return "("+F(d+1)+" "+R.choice(["//","%"])+" "+R.choice(["2.0","0.7","-3.5"])+")"
        def B(d=0):
            k=R.random()
            if d>3 or k<.2: return R.choice(["b","true","false","not b"])
            if k<.4: return "("+I(d+1)+" "+R.choice(["==","!=","<",">","<=",">="])+" "+R.choice([I,F])(d+1)+")"
            if k<.5: return "("+S(d+1)+" "+R.choice(["==","!=","<",">","in","not in","<="])+" "+S(d+1)+")"
            if k<.7: return "("+A(d+1)+" is "+R.choice(["","not "])+R.choice(["defined","string","mapping","none","number","iterable","sequence","boolean","true","integer","float","undefined","lower","upper","callable","escaped","sameas(none)","in([1,'a',none])","eq('a')","false"])+")"
            if k<.76: return "("+I(d+1)+" is "+R.choice(["odd","even","divisibleby(3)","gt(2)","lt 5","ge(1)"])+")"
            if k<.88: return "("+B(d+1)+" "+R.choice(["and","or"])+" "+B(d+1)+")"
            if k<.93: return "(not "+B(d+1)+")"
            if k<.97: return "("+L(d+1)+" "+R.choice(["==","!="])+" "+L(d+1)+")"
            return "("+A(d+1)+" in "+L(d+1)+")"
        def LI(d=0):
            k=R.random()
            if d>2 or k<.4: return R.choice(["[1,2,3]","li","range(4)","range(5,0,-2)","[5,3,3,1]","[]"])
            if k<.6: return "("+LI(d+1)+"|"+R.choice(["sort","sort(reverse=true)","reverse|list","unique|list","select('odd')|list","reject('even')|list","map('abs')|list","list"])+")"
            if k<.8: return "("+LI(d+1)+"|list)["+R.choice(["1:",":2","::-1","-2:",":"])+"]"
            return "("+LI(d+1)+"|list + "+LI(d+1)+"|list)"
        def L(d=0):
            k=R.random()
            if d>3 or k<.25: return R.choice(["l","ls","mix","rows","messages","["+A(d+1)+", "+A(d+1)+"]","("+A(d+1)+",)"])
            if k<.35: return LI(d+1)
            if k<.55: return "("+L(d+1)+"|"+R.choice(["list","map('string')|list","reverse|list","select('defined')|list","batch(2)|list","batch(2,'-')|list","slice(2)|list","slice(3,0)|list","map('default', 0)|list","select|list","reject|list","select('string')|list","map('tojson')|list","reject('none')|list","map('string')|sort","map('string')|unique|list","map('string')|sort(case_sensitive=true)"])+")"
            if k<.63: return "(rows|"+R.choice(["map(attribute='name')|list","selectattr('tags')|list","rejectattr('name','eq','bob')|list","sort(attribute='name')","sort(attribute='v,id')","groupby('name')","groupby('name',case_sensitive=true)","map(attribute='tags.0')|map('default','?')|list","selectattr('id','gt',1)|map(attribute='id')|list","map(attribute='zz',default=1)|list","sum(attribute='v')|string|list","unique(attribute='name')|list","sort(attribute='v', reverse=true)|map(attribute='v')|list","min(attribute='v')|default({})|list","max(attribute='id')|default({})|list"])+")"
            if k<.72: return "("+S(d+1)+")."+R.choice(["split()","split(',')","splitlines()","split('l')","partition(',')","rsplit('a',1)","split(' ',2)","splitlines(true)"])
            if k<.8: return "("+D(d+1)+"|"+R.choice(["dictsort","items|list","list","dictsort(reverse=true)"])+")"
            if k<.86: return "("+D(d+1)+")."+R.choice(["items()|list","keys()|list","values()|list"])
            if k<.92: return "("+L(d+1)+")["+R.choice(["1:",":2","::-1",":-1"])+"]"
            return "["+", ".join(A(d+1) for _ in range(R.randint(0,3)))+"]"
        def D(d=0):
            k=R.random()
            if d>3 or k<.5: return R.choice(["d","nest","{}","{'a': 1, 'b': 'x'}","dict(q=1, w=none)"])
            if k<.8: return "{"+", ".join("'%s': %s"%(x,A(d+1)) for x in R.sample(["a","b","c","k"],R.randint(0,3)))+"}"
            return "dict("+D(d+1)+", zz="+A(d+1)+")"
        def A(d=0): return R.choice([S,I,F,B,L,D,S,I,lambda d:R.choice(["none","undef","d.a","nest.e.x","messages|length","rows|length"])])(d)
        def tag(s):
            k=R.random()
            return "{%"+("-" if k<.15 else "+" if k<.2 else "")+" "+s+" "+("-" if .5<k<.65 else "+" if .65<k<.7 else "")+"%}"
        V=["a1","a2","s","nn","x"]
        def body(d): return "".join(stmt(d) for _ in range(R.randint(1,3)))
        def out(e): 
            k=R.random()
            return "{{"+("-" if k<.1 else "")+" "+e+" "+("-" if k>.9 else "")+"}}"
        def stmt(d=0):
            k=R.random(); w=R.choice(SPACES)
            if d>3 or k<.4: return w+out(A())+R.choice(SPACES)
            if k<.5: return w+tag("set "+R.choice(["a1","a2","x"])+" = "+A(1))
            if k<.54: return w+tag("set s = "+S(1))
            if k<.64: return w+tag("if "+B(1))+body(d+1)+R.choice(["",tag("elif "+B(1))+body(d+1)])+R.choice(["",tag("else")+body(d+1)])+tag("endif")
            if k<.8:
                it=R.choice([L,L,LI,lambda d:"d.items()",lambda d:"d",S])(1)
                tg="x" if it!="d.items()" else "k, x"
                b=body(d+1)
                if R.random()<.6: b+=out(R.choice(["loop.index","loop.last","loop.first","loop.length","loop.revindex","loop.revindex0","loop.previtem","loop.nextitem","loop.cycle('o','e')","loop.changed(x)","loop.depth","x","a1","loop.index0 ~ ':' ~ x"]))
                if R.random()<.12: b+=tag(R.choice(["if loop.index > 1","if x"]))+tag(R.choice(["break","continue"]))+tag("endif")+"t"
                return w+tag("for "+tg+" in "+it+R.choice(["","","",""," if x"," if "+B(2)]))+b+R.choice(["","",tag("else")+body(d+1)])+tag("endfor")
            if k<.84: return w+tag("set "+R.choice(V)+R.choice([""," | upper"," | trim"]))+body(d+1)+tag("endset")
            if k<.90: return w+tag("macro f(a, b="+A(2)+")")+body(d+1)+"{{ a }}{{ b }}"+tag("endmacro")+out("f("+R.choice([A(1),A(1)+", "+A(1),"a="+A(1),"b=2, a=1",""])+")")
            if k<.93: return w+tag("macro g(a)")+"<{{ caller(a) }}>"+tag("endmacro")+tag("call(y) g("+A(1)+")")+body(d+1)+"{{ y }}"+tag("endcall")
            if k<.95: return w+tag("with a1 = "+A(1)+", a2 = "+A(2))+body(d+1)+"{{ a1 }}"+tag("endwith")
            if k<.97: return w+tag("filter "+R.choice(["upper","trim","indent(2)","title"]))+body(d+1)+tag("endfilter")
            return w+tag("set ns = namespace(n=0, last='')")+tag("for x in "+L(1))+tag("set ns.n = ns.n + "+R.choice(["1","loop.index"]))+tag("if "+B(2))+tag("set ns.last = x")+tag("endif")+tag("endfor")+"{{ ns.n }}{{ ns.last }}"

        self.program = lambda: body(0) if R.random() < .5 else out(A())
        self.context = lambda: context(R)
