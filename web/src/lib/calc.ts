/** Arithmetic for the calculator tool: + - * / % ^, brackets, a few functions. Nothing is evaluated as a script. */
const functions: Record<string, (x: number) => number> = {
  sqrt: Math.sqrt,
  abs: Math.abs,
  sin: Math.sin,
  cos: Math.cos,
  tan: Math.tan,
  ln: Math.log,
  log: Math.log10,
  exp: Math.exp,
  round: Math.round,
  floor: Math.floor,
  ceil: Math.ceil,
};
const constants: Record<string, number> = { pi: Math.PI, e: Math.E };

export function calculate(text: string): number {
  const tokens = text.match(/\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+|[a-z]+|\*\*|[-+*/%^()]|\S/gi) ?? [];
  let at = 0;
  const fail = (): never => {
    throw new Error(`cannot read '${tokens[at] ?? "the end"}' in ${text.slice(0, 100)}`);
  };
  const factor = (depth: number): number => {
    if (depth > 100) fail();
    const t = tokens[at++] ?? "";
    if (/^[\d.]/.test(t)) return Number(t);
    if (t === "(") {
      const v = sum(depth + 1);
      if (tokens[at++] !== ")") fail();
      return v;
    }
    const name = t.toLowerCase();
    if (Object.hasOwn(functions, name)) return functions[name]!(factor(depth + 1));
    if (Object.hasOwn(constants, name)) return constants[name]!;
    at--;
    return fail();
  };
  const power = (depth: number): number => {
    const base = factor(depth);
    if (tokens[at] !== "^" && tokens[at] !== "**") return base;
    at++;
    return base ** signed(depth + 1);
  };
  const signed = (depth: number): number => {
    if (depth > 100) fail();
    if (tokens[at] === "-" || tokens[at] === "+") return tokens[at++] === "-" ? -signed(depth + 1) : signed(depth + 1);
    return power(depth);
  };
  const product = (depth: number): number => {
    let v = signed(depth);
    for (let t = tokens[at]; t === "*" || t === "/" || t === "%"; t = tokens[at]) {
      at++;
      const w = signed(depth);
      v = t === "*" ? v * w : t === "/" ? v / w : v % w;
    }
    return v;
  };
  const sum = (depth: number): number => {
    let v = product(depth);
    for (let t = tokens[at]; t === "+" || t === "-"; t = tokens[at]) {
      at++;
      v += t === "+" ? product(depth) : -product(depth);
    }
    return v;
  };
  const value = sum(0);
  if (at < tokens.length) fail();
  return value;
}
