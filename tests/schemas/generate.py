#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes schemas.jsonl: 300 schemas, one {"name", "schema"} per line, for the constrained-output tests.

The first part are schemas as people write them: configuration files, API bodies, tool arguments, documents. The second
part turns the screws of single keywords through their interesting values. Run it after a change; the output is committed.
"""
import json
import os

D7 = "http://json-schema.org/draft-07/schema#"
D4 = "http://json-schema.org/draft-04/schema#"
D20 = "https://json-schema.org/draft/2020-12/schema"
out = []


def add(name, schema):
    out.append({"name": name, "schema": schema})


def O(props, req=None, more=False, **kw):
    s = {"type": "object", "properties": props}
    if req is not None:
        s["required"] = list(props) if req == "all" else req
    if more is not True:
        s["additionalProperties"] = more
    s.update(kw)
    return s


def A(items, **kw):
    return {"type": "array", "items": items, **kw}


def E(*values):
    return {"enum": list(values)}


def R(name):
    return {"$ref": "#/$defs/" + name}


STR, INT, NUM, BOOL, NULL = ({"type": t} for t in ("string", "integer", "number", "boolean", "null"))


def S(**kw):
    return {"type": "string", **kw}


def I(**kw):
    return {"type": "integer", **kw}


def N(**kw):
    return {"type": "number", **kw}


def null_or(s):
    return {"anyOf": [s, NULL]}


def K(v):
    return {"const": v}


# --- configuration files ---------------------------------------------------------------------------------------------
person = {"anyOf": [STR, O({"name": STR, "email": S(format="email"), "url": S(format="uri")}, ["name"])]}
semver = S(pattern=r"^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$")
deps = {"type": "object", "additionalProperties": S(minLength=1), "propertyNames": {"pattern": "^(@[a-z0-9-]+/)?[a-z0-9._-]+$"}}
add("package.json", {"$schema": D7, **O({
    "name": S(minLength=1, maxLength=214, pattern="^(?:@[a-z0-9-*~][a-z0-9-*._~]*/)?[a-z0-9-~][a-z0-9-._~]*$"),
    "version": semver, "description": STR, "keywords": A(STR), "homepage": S(format="uri"), "license": STR,
    "author": person, "contributors": A(person), "main": STR, "type": E("module", "commonjs"),
    "bin": {"anyOf": [STR, {"type": "object", "additionalProperties": STR}]},
    "scripts": {"type": "object", "additionalProperties": STR}, "dependencies": deps, "devDependencies": deps,
    "engines": {"type": "object", "additionalProperties": STR}, "private": {"anyOf": [BOOL, E("true", "false")]},
}, ["name", "version"], True)})
add("package-lock entry", O({"version": semver, "resolved": S(format="uri"), "integrity": S(pattern="^sha512-[A-Za-z0-9+/]{86}==$"),
                             "dev": BOOL, "requires": deps}, ["version", "resolved", "integrity"]))
add("tsconfig", O({"extends": STR, "include": A(STR), "exclude": A(STR), "files": A(STR),
                   "compilerOptions": O({"target": E("ES5", "ES2015", "ES2020", "ES2022", "ESNext"), "module": E("commonjs", "esnext", "nodenext"),
                                         "strict": BOOL, "outDir": STR, "lib": A(E("DOM", "ES2020", "ESNext", "WebWorker"), uniqueItems=True),
                                         "paths": {"type": "object", "additionalProperties": A(STR, minItems=1)}, "maxNodeModuleJsDepth": I(minimum=0, maximum=9)})}))
add("eslint rules", {"type": "object", "additionalProperties": {"oneOf": [
    E(0, 1, 2), E("off", "warn", "error"),
    {"type": "array", "prefixItems": [E(0, 1, 2, "off", "warn", "error")], "items": True, "minItems": 1, "maxItems": 4}]}})
step = {"oneOf": [O({"name": STR, "uses": S(pattern=r"^[\w.-]+/[\w./-]+@[\w.-]+$"), "with": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}, "if": STR}, ["uses"]),
                  O({"name": STR, "run": S(minLength=1), "shell": E("bash", "pwsh", "python", "sh"), "env": {"type": "object", "additionalProperties": STR}, "if": STR}, ["run"])]}
add("github workflow", O({
    "name": STR,
    "on": {"anyOf": [E("push", "pull_request", "workflow_dispatch"), A(E("push", "pull_request", "release"), minItems=1),
                     O({"push": O({"branches": A(STR), "tags": A(STR)}), "schedule": A(O({"cron": S(pattern=r"^(\S+ ){4}\S+$")}, "all"), minItems=1)}, minProperties=1)]},
    "permissions": {"anyOf": [E("read-all", "write-all"), {"type": "object", "additionalProperties": E("read", "write", "none")}]},
    "jobs": {"type": "object", "patternProperties": {"^[_a-zA-Z][a-zA-Z0-9_-]*$": O({
        "runs-on": {"anyOf": [E("ubuntu-latest", "windows-latest", "macos-latest"), A(STR, minItems=1)]},
        "needs": {"anyOf": [STR, A(STR)]}, "timeout-minutes": N(exclusiveMinimum=0, maximum=360), "steps": A(step, minItems=1)}, ["runs-on", "steps"])},
        "additionalProperties": False, "minProperties": 1},
}, ["on", "jobs"]))
add("docker compose", O({"version": E("3", "3.8"), "services": {"type": "object", "patternProperties": {"^[a-zA-Z0-9._-]+$": O({
    "image": STR, "build": {"oneOf": [STR, O({"context": STR, "dockerfile": STR}, ["context"])]},
    "ports": A({"oneOf": [I(minimum=1, maximum=65535), S(pattern=r"^(\d{1,5}:)?\d{1,5}(/(tcp|udp))?$")]}),
    "environment": {"oneOf": [A(S(pattern="^[A-Z_]+=.*$")), {"type": "object", "additionalProperties": {"type": ["string", "number", "null"]}}]},
    "restart": E("no", "always", "on-failure", "unless-stopped"), "depends_on": A(STR)})}, "additionalProperties": False}}, ["services"]))
add("kubernetes deployment", {"$defs": {
    "labels": {"type": "object", "additionalProperties": S(maxLength=63)},
    "meta": O({"name": S(pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", maxLength=63), "namespace": STR, "labels": R("labels"), "annotations": R("labels")}, ["name"]),
    "quantity": S(pattern=r"^[0-9]+(\.[0-9]+)?(m|Ki|Mi|Gi)?$"),
    "container": O({"name": STR, "image": STR, "args": A(STR), "env": A({"oneOf": [O({"name": STR, "value": STR}, "all"), O({"name": STR, "valueFrom": {"type": "object"}}, "all")]}),
                    "ports": A(O({"containerPort": I(minimum=1, maximum=65535), "protocol": E("TCP", "UDP")}, ["containerPort"])),
                    "resources": O({"limits": {"type": "object", "additionalProperties": R("quantity")}, "requests": {"type": "object", "additionalProperties": R("quantity")}})}, ["name", "image"])},
    **O({"apiVersion": K("apps/v1"), "kind": K("Deployment"), "metadata": R("meta"),
         "spec": O({"replicas": I(minimum=0), "selector": O({"matchLabels": R("labels")}, "all"),
                    "template": O({"metadata": R("meta"), "spec": O({"containers": A(R("container"), minItems=1), "restartPolicy": E("Always", "Never")}, ["containers"])}, "all")}, ["selector", "template"])}, "all")})
add("dependabot", O({"version": K(2), "updates": A(O({"package-ecosystem": E("npm", "pip", "cargo", "docker", "github-actions"), "directory": S(pattern="^/"),
                                                     "schedule": O({"interval": E("daily", "weekly", "monthly"), "time": S(pattern="^([01]?[0-9]|2[0-3]):[0-5][0-9]$")}, ["interval"]),
                                                     "open-pull-requests-limit": I(minimum=0)}, ["package-ecosystem", "directory", "schedule"]), minItems=1)}, "all"))
add("editor settings", {"type": "object", "properties": {"editor.tabSize": I(minimum=1, maximum=16), "editor.wordWrap": E("off", "on", "bounded"),
                                                        "editor.rulers": A(I(minimum=0)), "files.exclude": {"type": "object", "additionalProperties": BOOL}},
                        "patternProperties": {r"^\[.+\]$": {"type": "object"}}, "additionalProperties": {"type": ["string", "number", "boolean", "null"]}})
add("prettier", {"$schema": D7, **O({"printWidth": I(minimum=1), "tabWidth": I(minimum=0), "useTabs": BOOL, "semi": BOOL, "quoteProps": E("as-needed", "consistent", "preserve"),
                                     "overrides": A(O({"files": {"oneOf": [STR, A(STR)]}, "options": {"type": "object"}}, ["files"]))})})
add("renovate-like", {"$schema": D4, "definitions": {"rule": {"type": "object", "properties": {"matchPackageNames": A(STR), "enabled": BOOL, "groupName": STR}, "additionalProperties": False}},
                      "type": "object", "properties": {"extends": A(STR), "packageRules": A({"$ref": "#/definitions/rule"}), "prHourlyLimit": I(minimum=0, exclusiveMinimum=True)}})
add("cargo manifest", O({"package": O({"name": S(pattern="^[a-zA-Z_][a-zA-Z0-9_-]*$"), "version": semver, "edition": E("2015", "2018", "2021", "2024"), "authors": A(STR)}, ["name", "version"]),
                         "dependencies": {"type": "object", "additionalProperties": {"anyOf": [STR, O({"version": STR, "features": A(STR), "optional": BOOL, "git": S(format="uri")})]}},
                         "features": {"type": "object", "additionalProperties": A(STR)}}, ["package"]))
add("nginx route table", A(O({"location": S(pattern="^/"), "proxy_pass": S(format="uri"), "timeout_ms": I(minimum=1, maximum=600000), "headers": {"type": "object", "additionalProperties": STR}}, ["location"]), minItems=1))
add("logging config", O({"level": E("trace", "debug", "info", "warn", "error"), "sinks": A({"oneOf": [
    O({"kind": K("file"), "path": STR, "rotate_mb": I(minimum=1)}, ["kind", "path"]),
    O({"kind": K("syslog"), "host": S(format="hostname"), "port": I(minimum=1, maximum=65535)}, ["kind", "host"]),
    O({"kind": K("stdout"), "colour": BOOL}, ["kind"])]}, minItems=1)}, "all"))
add("feature flags", {"type": "object", "propertyNames": S(pattern="^[a-z][a-z0-9_]{2,40}$"), "additionalProperties": {"oneOf": [BOOL, N(minimum=0, maximum=1), O({"users": A(STR), "percent": I(minimum=0, maximum=100)}, minProperties=1)]}})
add("terraform variable", O({"type": E("string", "number", "bool", "list(string)"), "default": True, "description": STR, "sensitive": BOOL, "validation": O({"condition": STR, "error_message": S(pattern=r"\.$")}, "all")}, ["type"]))
add("ci matrix", O({"matrix": {"type": "object", "additionalProperties": A({"type": ["string", "number"]}, minItems=1), "minProperties": 1}, "fail-fast": BOOL, "max-parallel": I(minimum=1, maximum=256)}, ["matrix"]))
add("browser manifest", O({"manifest_version": K(3), "name": S(maxLength=45), "version": S(pattern=r"^\d{1,5}(\.\d{1,5}){0,3}$"), "permissions": A(E("tabs", "storage", "cookies", "alarms"), uniqueItems=True),
                           "icons": {"type": "object", "patternProperties": {"^[1-9][0-9]*$": STR}, "additionalProperties": False}}, ["manifest_version", "name", "version"]))

# --- API bodies --------------------------------------------------------------------------------------------------------
add("openapi info", O({"openapi": S(pattern=r"^3\.1\.\d+(-.+)?$"), "info": O({"title": STR, "version": STR, "contact": O({"name": STR, "url": S(format="uri"), "email": S(format="email")}),
                                                                            "license": O({"name": STR, "identifier": STR, "url": S(format="uri")}, ["name"])}, ["title", "version"]),
                       "servers": A(O({"url": STR, "description": STR}, ["url"]))}, ["openapi", "info"]))
param = {"allOf": [O({"name": STR, "in": E("query", "header", "path", "cookie"), "required": BOOL, "schema": {"type": "object"}}, ["name", "in"], True)],
         "if": {"properties": {"in": K("path")}, "required": ["in"]}, "then": {"properties": {"required": K(True)}, "required": ["required"]}}
add("openapi parameter", param)
add("openapi operation", O({"operationId": S(pattern="^[a-zA-Z][a-zA-Z0-9_]*$"), "summary": S(maxLength=120), "parameters": A(param), "tags": A(STR),
                            "responses": {"type": "object", "patternProperties": {"^[1-5](?:[0-9]{2}|XX)$": O({"description": STR}, "all", True)}, "properties": {"default": O({"description": STR}, "all", True)}, "additionalProperties": False, "minProperties": 1}}, ["responses"]))
add("problem details", O({"type": S(format="uri-reference"), "title": STR, "status": I(minimum=100, maximum=599), "detail": STR, "instance": S(format="uri-reference")}, ["title", "status"], True))
add("json-rpc request", O({"jsonrpc": K("2.0"), "method": S(minLength=1), "params": {"anyOf": [{"type": "array"}, {"type": "object"}]}, "id": {"type": ["string", "integer", "null"]}}, ["jsonrpc", "method"]))
add("json-rpc response", {"oneOf": [O({"jsonrpc": K("2.0"), "id": {"type": ["string", "integer"]}, "result": True}, "all"),
                                    O({"jsonrpc": K("2.0"), "id": {"type": ["string", "integer", "null"]}, "error": O({"code": INT, "message": STR, "data": True}, ["code", "message"])}, "all")]})
add("json patch", A({"oneOf": [O({"op": E("add", "replace", "test"), "path": S(format="json-pointer"), "value": True}, "all"),
                               O({"op": K("remove"), "path": S(format="json-pointer")}, "all"),
                               O({"op": E("move", "copy"), "path": S(format="json-pointer"), "from": S(format="json-pointer")}, "all")]}))
add("pagination", O({"items": A({"type": "object"}), "next": null_or(S(format="uri")), "total": I(minimum=0), "page": I(minimum=1)}, "all"))
add("oauth token", O({"access_token": S(minLength=1), "token_type": K("Bearer"), "expires_in": I(minimum=1), "refresh_token": STR, "scope": S(pattern="^[a-z:]+( [a-z:]+)*$")}, ["access_token", "token_type"]))
add("webhook event", {"oneOf": [O({"event": K("push"), "ref": S(pattern="^refs/"), "commits": A(O({"sha": S(pattern="^[0-9a-f]{40}$"), "message": STR}, "all"))}, "all"),
                                O({"event": K("star"), "action": E("created", "deleted"), "at": S(format="date-time")}, "all"),
                                O({"event": K("ping"), "zen": STR}, "all")]})
add("graphql result", O({"data": {"type": ["object", "null"]}, "errors": A(O({"message": STR, "path": A({"type": ["string", "integer"]}), "locations": A(O({"line": I(minimum=1), "column": I(minimum=1)}, "all"))}, ["message"]), minItems=1)}, ["data"]))
add("bulk import row", {"type": "array", "prefixItems": [S(format="uuid"), S(format="date"), N(minimum=0), BOOL], "items": False, "minItems": 4})
add("chat message", O({"role": E("system", "user", "assistant", "tool"), "content": {"anyOf": [STR, A({"oneOf": [O({"type": K("text"), "text": STR}, "all"), O({"type": K("image_url"), "image_url": O({"url": S(format="uri"), "detail": E("low", "high", "auto")}, ["url"])}, "all")]}, minItems=1)]}, "name": S(pattern="^[a-zA-Z0-9_-]{1,64}$")}, ["role", "content"]))
add("search query", O({"query": S(minLength=1, maxLength=200), "filters": O({"from": S(format="date"), "to": S(format="date"), "tags": A(STR, maxItems=5)}), "sort": E("relevance", "date", "-date"), "limit": I(minimum=1, maximum=100)}, ["query"]))
add("error union", {"anyOf": [O({"ok": K(True), "value": True}, "all"), O({"ok": K(False), "error": S(minLength=1)}, "all")]})
add("cloud event", O({"specversion": K("1.0"), "id": S(minLength=1), "source": S(format="uri-reference", minLength=1), "type": S(minLength=1), "time": S(format="date-time"), "datacontenttype": STR, "data": True}, ["specversion", "id", "source", "type"]))
add("s3 policy", O({"Version": K("2012-10-17"), "Statement": A(O({"Sid": S(pattern="^[A-Za-z0-9]*$"), "Effect": E("Allow", "Deny"), "Action": {"oneOf": [S(pattern="^[a-z0-9]+:[A-Za-z*]+$"), A(S(pattern="^[a-z0-9]+:[A-Za-z*]+$"), minItems=1)]}, "Resource": {"anyOf": [STR, A(STR)]}}, ["Effect", "Action", "Resource"]), minItems=1)}, "all"))
add("activity stream", {"$defs": {"obj": O({"type": E("Note", "Article", "Image"), "content": STR, "attachment": A(R("obj"))}, ["type"])}, **O({"@context": K("https://www.w3.org/ns/activitystreams"), "type": E("Create", "Like", "Follow"), "actor": S(format="uri"), "object": {"anyOf": [S(format="uri"), R("obj")]}}, "all")})

# --- tool arguments ------------------------------------------------------------------------------------------------------
add("tool get_weather", O({"city": STR, "unit": E("celsius", "fahrenheit"), "days": I(minimum=1, maximum=14)}, ["city"]))
add("tool send_email", O({"to": A(S(format="email"), minItems=1, maxItems=10), "subject": S(maxLength=120), "body": STR, "priority": E("low", "normal", "high")}, ["to", "subject", "body"]))
add("tool calculate", O({"expression": S(pattern=r"^[0-9+*/() .-]+$", minLength=1), "precision": I(minimum=0, maximum=15)}, ["expression"]))
add("tool create_event", O({"title": STR, "start": S(format="date-time"), "end": S(format="date-time"), "attendees": A(O({"name": STR, "email": S(format="email")}, ["email"])), "recurrence": {"oneOf": [NULL, O({"every": E("day", "week", "month"), "count": I(minimum=1, maximum=365)}, "all")]}}, ["title", "start", "end"]))
add("tool sql", O({"table": S(pattern="^[a-z_]+$"), "columns": A(S(pattern="^[a-z_]+$"), minItems=1), "where": A(O({"column": STR, "op": E("=", "<", ">", "<=", ">=", "like"), "value": {"type": ["string", "number", "boolean", "null"]}}, "all"))}, ["table", "columns"]))
add("tool area", O({"shape": E("circle", "square", "triangle"), "dimensions": {"type": "object", "oneOf": [O({"radius": N(exclusiveMinimum=0)}, "all"), O({"side": N(exclusiveMinimum=0)}, "all"), O({"base": N(exclusiveMinimum=0), "height": N(exclusiveMinimum=0)}, "all")]}}, "all"))
add("tool translate", O({"text": S(minLength=1), "from": S(pattern="^[a-z]{2}(-[A-Z]{2})?$"), "to": S(pattern="^[a-z]{2}(-[A-Z]{2})?$"), "formal": BOOL}, ["text", "to"]))
add("tool book_flight", O({"from": S(pattern="^[A-Z]{3}$"), "to": S(pattern="^[A-Z]{3}$"), "date": S(format="date"), "passengers": I(minimum=1, maximum=9), "cabin": E("economy", "business", "first")}, ["from", "to", "date", "passengers"]))
add("tool set_lights", O({"room": STR, "on": BOOL, "brightness": I(minimum=0, maximum=100, multipleOf=5), "colour": S(pattern="^#[0-9a-fA-F]{6}$")}, ["room", "on"]))
add("tool parallel calls", A({"oneOf": [O({"name": K("search"), "arguments": O({"q": STR}, "all")}, "all"), O({"name": K("open"), "arguments": O({"url": S(format="uri")}, "all")}, "all")]}, minItems=1, maxItems=4))
add("tool no arguments", O({}))
add("tool nested options", O({"path": STR, "options": O({"recursive": BOOL, "depth": I(minimum=0, maximum=32), "filter": O({"include": A(STR), "exclude": A(STR)})})}, ["path"]))

# --- documents -----------------------------------------------------------------------------------------------------------
pos = {"type": "array", "prefixItems": [N(minimum=-180, maximum=180), N(minimum=-90, maximum=90)], "items": NUM, "minItems": 2, "maxItems": 3}
geo = {"point": O({"type": K("Point"), "coordinates": R("pos")}, "all"), "line": O({"type": K("LineString"), "coordinates": A(R("pos"), minItems=2)}, "all"),
       "polygon": O({"type": K("Polygon"), "coordinates": A(A(R("pos"), minItems=4))}, "all"), "pos": pos,
       "geometry": {"oneOf": [R("point"), R("line"), R("polygon"), O({"type": K("GeometryCollection"), "geometries": A(R("geometry"))}, "all")]},
       "feature": O({"type": K("Feature"), "id": {"type": ["string", "number"]}, "geometry": {"oneOf": [NULL, R("geometry")]}, "properties": {"oneOf": [NULL, {"type": "object"}]}}, ["type", "geometry", "properties"])}
add("geojson geometry", {"$defs": geo, **R("geometry")})
add("geojson feature", {"$defs": geo, **R("feature")})
add("geojson collection", {"$defs": geo, **O({"type": K("FeatureCollection"), "features": A(R("feature")), "bbox": A(NUM, minItems=4, maxItems=6)}, ["type", "features"])})
money = N(minimum=0, multipleOf=0.01)
address = O({"street": S(minLength=1), "city": S(minLength=1), "postcode": S(pattern="^[A-Z0-9 -]{3,10}$"), "country": S(pattern="^[A-Z]{2}$")}, "all")
add("invoice", {"$defs": {"address": address, "money": money}, **O({
    "number": S(pattern="^INV-[0-9]{4}-[0-9]{5}$"), "issued": S(format="date"), "due": S(format="date"), "currency": E("EUR", "USD", "GBP", "JPY"),
    "seller": O({"name": STR, "vat": S(pattern="^[A-Z]{2}[0-9A-Z]{8,12}$"), "address": R("address")}, "all"), "buyer": O({"name": STR, "address": R("address")}, "all"),
    "lines": A(O({"text": STR, "quantity": N(exclusiveMinimum=0, maximum=9999), "price": R("money"), "tax": E(0, 7, 19)}, "all"), minItems=1), "total": R("money"), "paid": BOOL,
}, ["number", "issued", "currency", "seller", "buyer", "lines", "total"])})
add("receipt", O({"shop": STR, "items": A(O({"name": STR, "cents": I(minimum=0)}, "all"), minItems=1), "cash": BOOL, "card_last4": S(pattern="^[0-9]{4}$")}, ["shop", "items"], dependentRequired={"card_last4": ["cash"]}))
add("resume", O({"name": STR, "email": S(format="email"), "work": A(O({"company": STR, "from": S(format="date"), "to": null_or(S(format="date")), "highlights": A(STR, maxItems=6)}, ["company", "from"])), "skills": A(O({"name": STR, "level": E("basic", "good", "expert")}, "all"))}, ["name", "email"]))
add("recipe", O({"title": STR, "serves": I(minimum=1, maximum=50), "minutes": I(minimum=1), "ingredients": A(O({"item": STR, "amount": N(exclusiveMinimum=0), "unit": E("g", "ml", "tbsp", "tsp", "piece")}, ["item"]), minItems=1), "steps": A(S(minLength=1), minItems=1)}, ["title", "ingredients", "steps"]))
add("survey", A({"oneOf": [O({"kind": K("choice"), "options": A(STR, minItems=2, maxItems=8), "multi": BOOL}, ["kind", "options"]), O({"kind": K("scale"), "min": INT, "max": INT}, "all"), O({"kind": K("text"), "lines": I(minimum=1, maximum=20)}, ["kind"])]}, minItems=1))
add("sensor reading", O({"id": S(format="uuid"), "at": S(format="date-time"), "celsius": N(minimum=-90, maximum=60), "humidity": N(minimum=0, maximum=100), "battery": null_or(I(minimum=0, maximum=100))}, ["id", "at", "celsius"]))
add("chess game", O({"white": STR, "black": STR, "result": E("1-0", "0-1", "1/2-1/2", "*"), "moves": A(S(pattern="^([KQRBN]?[a-h]?[1-8]?x?[a-h][1-8](=[QRBN])?|O-O(-O)?)[+#]?$"))}, ["white", "black", "result", "moves"]))
add("library book", O({"isbn": S(pattern="^(97[89])?[0-9]{9}[0-9X]$"), "title": STR, "authors": A(STR, minItems=1), "year": I(minimum=1450, maximum=2100), "language": S(pattern="^[a-z]{2}$")}, ["isbn", "title", "authors"]))
add("bank transfer", O({"iban": S(pattern="^[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}$"), "amount": N(exclusiveMinimum=0, multipleOf=0.01, maximum=1000000), "currency": S(minLength=3, maxLength=3, pattern="^[A-Z]*$"), "reference": S(maxLength=140)}, ["iban", "amount", "currency"]))
add("medical record", O({"patient": S(format="uuid"), "blood": E("A+", "A-", "B+", "B-", "AB+", "AB-", "O+", "O-"), "allergies": A(STR), "visits": A(O({"on": S(format="date"), "codes": A(S(pattern=r"^[A-TV-Z][0-9][0-9AB](\.[0-9A-TV-Z]{1,4})?$"))}, "all"))}, ["patient"]))
add("product", O({"sku": S(pattern="^[A-Z0-9]{4,12}$"), "name": S(minLength=1, maxLength=80), "price": N(exclusiveMinimum=0), "stock": I(minimum=0), "dimensions": O({"w": N(minimum=0), "h": N(minimum=0), "d": N(minimum=0)}, "all"), "tags": A(S(pattern="^[a-z-]+$"), maxItems=12)}, ["sku", "name", "price"]))
add("subtitle file", A(O({"from": S(pattern=r"^[0-9]{2}:[0-5][0-9]:[0-5][0-9],[0-9]{3}$"), "to": S(pattern=r"^[0-9]{2}:[0-5][0-9]:[0-5][0-9],[0-9]{3}$"), "lines": A(S(maxLength=42), minItems=1, maxItems=2)}, "all")))
add("playlist", O({"name": STR, "tracks": A(O({"title": STR, "artist": STR, "seconds": I(minimum=1, maximum=86400), "isrc": S(pattern="^[A-Z]{2}[A-Z0-9]{3}[0-9]{7}$")}, ["title", "artist"]))}, "all"))
add("translations", {"type": "object", "propertyNames": S(pattern="^[a-z]{2}(-[A-Z]{2})?$"), "additionalProperties": {"type": "object", "additionalProperties": STR}})
add("legal clause", {"$defs": {"clause": O({"number": S(pattern=r"^[0-9]+(\.[0-9]+)*$"), "text": S(minLength=1), "clauses": A(R("clause"))}, ["number", "text"])}, **A(R("clause"), minItems=1)})
add("timetable", {"type": "object", "properties": {d: A(O({"at": S(pattern="^([01][0-9]|2[0-3]):[0-5][0-9]$"), "what": STR}, "all")) for d in ("mon", "tue", "wed", "thu", "fri", "sat", "sun")}, "additionalProperties": False})

# --- more of daily life ------------------------------------------------------------------------------------------------------
add("rss item", O({"title": STR, "link": S(format="uri"), "pubDate": S(format="date-time"), "guid": {"anyOf": [STR, O({"isPermaLink": BOOL, "value": STR}, "all")]}, "category": A(STR)}, ["title", "link"]))
add("dns records", A({"oneOf": [O({"type": K("A"), "name": S(format="hostname"), "value": S(format="ipv4"), "ttl": I(minimum=60, maximum=86400)}, ["type", "name", "value"]), O({"type": K("AAAA"), "name": S(format="hostname"), "value": S(format="ipv6")}, "all"), O({"type": K("MX"), "name": S(format="hostname"), "priority": I(minimum=0, maximum=65535), "value": S(format="hostname")}, "all")]}))
add("kanban board", O({"columns": A(O({"name": S(minLength=1), "limit": null_or(I(minimum=1)), "cards": A(O({"id": I(minimum=1), "title": STR, "due": S(format="date"), "labels": A(E("bug", "idea", "chore"), uniqueItems=True)}, ["id", "title"]))}, ["name", "cards"]), minItems=1)}, "all"))
add("user profile", O({"id": S(format="uuid"), "login": S(pattern="^[a-z][a-z0-9_]{2,15}$"), "born": S(format="date"), "roles": A(E("admin", "editor", "viewer"), uniqueItems=True, minItems=1), "settings": {"type": "object", "additionalProperties": {"type": ["string", "boolean", "number"]}}}, ["id", "login", "roles"]))
add("audit log line", O({"at": S(format="date-time"), "who": {"oneOf": [O({"user": S(format="uuid")}, "all"), O({"service": STR}, "all")]}, "action": S(pattern="^[a-z]+[.][a-z]+$"), "ip": {"anyOf": [S(format="ipv4"), S(format="ipv6")]}}, ["at", "who", "action"]))
add("metrics sample", O({"name": S(pattern="^[a-zA-Z_:][a-zA-Z0-9_:]*$"), "labels": {"type": "object", "propertyNames": S(pattern="^[a-zA-Z_][a-zA-Z0-9_]*$"), "additionalProperties": STR}, "value": NUM, "timestamp": I(minimum=0)}, ["name", "value"]))
add("graph", O({"nodes": A(O({"id": INT, "label": STR}, ["id"])), "edges": A({"type": "array", "prefixItems": [INT, INT, N(minimum=0)], "items": False, "minItems": 2})}, "all"))
add("matrix 3x3", A(A(NUM, minItems=3, maxItems=3), minItems=3, maxItems=3))
add("colour palette", {"type": "object", "additionalProperties": {"anyOf": [S(pattern="^#[0-9a-f]{6}$"), {"type": "array", "items": I(minimum=0, maximum=255), "minItems": 3, "maxItems": 4}]}, "maxProperties": 16})
add("quiz", A(O({"question": S(minLength=5, maxLength=200), "answers": A(STR, minItems=4, maxItems=4), "correct": I(minimum=0, maximum=3), "why": STR}, ["question", "answers", "correct"]), minItems=1, maxItems=10))
add("contact card", O({"names": O({"given": STR, "family": STR}, ["given"]), "phones": A(O({"kind": E("home", "work", "mobile"), "number": S(pattern="^[+]?[0-9][0-9 ]{5,18}$")}, "all")), "born": S(pattern="^(--)?[0-9]{2}-[0-9]{2}$")}, ["names"]))
add("shipment", O({"carrier": E("dhl", "ups", "post"), "tracking": S(pattern="^[A-Z0-9]{8,20}$"), "weight_kg": N(exclusiveMinimum=0, maximum=70), "events": A(O({"at": S(format="date-time"), "where": STR, "what": E("picked up", "in transit", "delivered")}, "all"))}, ["carrier", "tracking"]))
add("cart", {"$defs": {"item": O({"sku": S(pattern="^[A-Z]{3}-[0-9]{4}$"), "n": I(minimum=1, maximum=99), "gift": BOOL}, ["sku", "n"])}, **O({"items": A(R("item"), minItems=1), "coupon": S(pattern="^[A-Z0-9]{5}$"), "ship_to": address}, ["items"])})
add("permission matrix", {"type": "object", "additionalProperties": {"type": "object", "properties": {k: BOOL for k in ("read", "write", "delete", "share")}, "additionalProperties": False, "minProperties": 1}})
add("sql table", O({"name": S(pattern="^[a-z_][a-z0-9_]*$"), "columns": A(O({"name": S(pattern="^[a-z_][a-z0-9_]*$"), "type": {"anyOf": [E("int", "text", "bool", "timestamp"), S(pattern="^varchar[(][1-9][0-9]{0,3}[)]$")]}, "null": BOOL, "default": {"type": ["string", "number", "boolean", "null"]}}, ["name", "type"]), minItems=1), "primary": A(STR, minItems=1)}, ["name", "columns"]))
add("model card", O({"name": STR, "parameters": I(minimum=1), "licence": STR, "languages": A(S(pattern="^[a-z]{2,3}$"), minItems=1), "metrics": {"type": "object", "additionalProperties": N(minimum=0, maximum=100)}}, ["name", "licence"], True))
add("experiment", O({"seed": I(minimum=0, maximum=4294967295), "lr": N(exclusiveMinimum=0, exclusiveMaximum=1), "optimizer": {"oneOf": [O({"kind": K("sgd"), "momentum": N(minimum=0, exclusiveMaximum=1)}, ["kind"]), O({"kind": K("adam"), "betas": A(N(minimum=0, exclusiveMaximum=1), minItems=2, maxItems=2)}, ["kind"])]}}, "all"))
add("http archive entry", O({"request": O({"method": E("GET", "POST", "PUT", "DELETE", "PATCH"), "url": S(format="uri"), "headers": A(O({"name": S(pattern="^[A-Za-z-]+$"), "value": STR}, "all"))}, ["method", "url"]), "response": O({"status": I(minimum=100, maximum=599), "bodySize": I(minimum=-1)}, ["status"]), "time": N(minimum=0)}, ["request", "response"]))
add("cookie", O({"name": S(pattern="^[^=; ]+$"), "value": S(pattern="^[^; ]*$"), "expires": S(format="date-time"), "secure": BOOL, "sameSite": E("Lax", "Strict", "None")}, ["name", "value"], **{"if": {"properties": {"sameSite": K("None")}, "required": ["sameSite"]}, "then": {"properties": {"secure": K(True)}, "required": ["secure"]}}))
add("support ticket", O({"id": S(pattern="^T-[1-9][0-9]*$"), "status": E("open", "waiting", "closed"), "closed_at": S(format="date-time"), "thread": A(O({"from": S(format="email"), "text": STR}, "all"))}, ["id", "status"], **{"if": {"properties": {"status": K("closed")}}, "then": {"required": ["closed_at"]}, "else": {"not": {"required": ["closed_at"]}}}))
add("incident", O({"severity": I(minimum=1, maximum=5), "started": S(format="date-time"), "ended": null_or(S(format="date-time")), "impact": A(STR, minItems=1), "root_cause": STR, "actions": A(O({"owner": STR, "what": STR, "done": BOOL}, ["owner", "what"]))}, ["severity", "started", "impact"]))
add("org chart", {"$defs": {"p": O({"name": STR, "title": STR, "reports": A(R("p"))}, ["name"])}, **R("p")})
add("bill of materials", {"$defs": {"part": O({"number": S(pattern="^[0-9]{3}-[0-9]{3}$"), "count": I(minimum=1), "parts": A(R("part"))}, ["number", "count"])}, **R("part")})
add("hotel booking", O({"hotel": STR, "check_in": S(format="date"), "nights": I(minimum=1, maximum=30), "rooms": A(O({"adults": I(minimum=1, maximum=4), "children": A(I(minimum=0, maximum=17), maxItems=3), "bed": E("twin", "double")}, ["adults"]), minItems=1, maxItems=5)}, ["hotel", "check_in", "nights", "rooms"]))
add("vehicle", {"type": "object", "properties": {"vin": S(pattern="^[A-HJ-NPR-Z0-9]{17}$"), "fuel": E("petrol", "diesel", "electric")}, "required": ["vin", "fuel"], "oneOf": [{"properties": {"fuel": K("electric"), "battery_kwh": N(exclusiveMinimum=0)}, "required": ["battery_kwh"]}, {"properties": {"fuel": E("petrol", "diesel"), "tank_l": N(exclusiveMinimum=0)}, "required": ["tank_l"]}]})
add("weather report", O({"station": S(pattern="^[A-Z]{4}$"), "temperature": N(minimum=-90, maximum=60), "wind": O({"from": I(minimum=0, maximum=359), "speed": N(minimum=0)}, "all"), "clouds": A({"type": "array", "prefixItems": [E("FEW", "SCT", "BKN", "OVC"), I(minimum=0)], "items": False, "minItems": 2}, maxItems=4)}, ["station", "temperature"]))
add("election result", {"type": "object", "properties": {"district": I(minimum=1), "votes": {"type": "object", "additionalProperties": I(minimum=0), "minProperties": 1}, "invalid": I(minimum=0)}, "required": ["district", "votes"], "additionalProperties": False})
add("musical note", {"type": "array", "items": {"oneOf": [O({"rest": I(minimum=1, maximum=64)}, "all"), O({"pitch": S(pattern="^[A-G](#|b)?[0-8]$"), "length": E(1, 2, 4, 8, 16, 32)}, "all")]}, "minItems": 1})
add("knitting pattern", A(A({"oneOf": [E("k", "p", "yo"), O({"repeat": I(minimum=2, maximum=20), "stitches": A(E("k", "p"), minItems=1)}, "all")]}, minItems=1), minItems=1))
add("lens formula", O({"model": STR, "conditions": A(O({"field": STR, "test": {"oneOf": [O({"equals": True}, "all"), O({"between": A(NUM, minItems=2, maxItems=2)}, "all"), O({"in": A(STR, minItems=1)}, "all")]}}, "all"))}, "all"))
add("ui form", {"$defs": {"field": {"oneOf": [O({"type": K("text"), "label": STR, "max": I(minimum=1)}, ["type", "label"]), O({"type": K("select"), "label": STR, "options": A(O({"value": STR, "text": STR}, "all"), minItems=1)}, "all"), O({"type": K("group"), "fields": A(R("field"))}, "all")]}}, **O({"title": STR, "fields": A(R("field"), minItems=1)}, "all")})
add("entities", O({"people": A(O({"name": STR, "mentions": I(minimum=1)}, "all")), "places": A(STR), "dates": A(S(format="date")), "sentiment": E("positive", "neutral", "negative"), "confidence": N(minimum=0, maximum=1)}, "all"))
add("reasoned answer", O({"steps": A(O({"thought": STR, "result": STR}, "all"), minItems=1, maxItems=8), "answer": STR}, "all"))
add("classification", O({"label": E(*["class_%d" % i for i in range(12)]), "score": N(minimum=0, maximum=1), "second": null_or(E(*["class_%d" % i for i in range(12)]))}, ["label", "score"]))
add("code review", A(O({"file": STR, "line": I(minimum=1), "severity": E("nit", "minor", "major", "blocker"), "comment": S(minLength=1), "suggestion": STR}, ["file", "line", "severity", "comment"]), maxItems=20))
add("crossword", O({"width": I(minimum=3, maximum=25), "height": I(minimum=3, maximum=25), "across": {"type": "object", "patternProperties": {"^[1-9][0-9]?$": S(minLength=1)}, "additionalProperties": False}, "grid": A(S(pattern="^[A-Z.#]{3,25}$"), minItems=3)}, ["width", "height", "across", "grid"]))

# --- recursion -------------------------------------------------------------------------------------------------------------
add("tree binary", {"$defs": {"t": O({"value": INT, "left": null_or(R("t")), "right": null_or(R("t"))}, ["value"])}, **R("t")})
add("tree of lists", {"type": "array", "items": {"$ref": "#"}})
add("tree nary", O({"name": STR, "children": A({"$ref": "#"})}, ["name"]))
add("linked list", {"$defs": {"n": {"anyOf": [NULL, O({"head": NUM, "tail": R("n")}, "all")]}}, **R("n")})
add("expression", {"$defs": {"e": {"oneOf": [NUM, S(pattern="^[a-z]$"), O({"op": E("+", "-", "*", "/"), "args": A(R("e"), minItems=2, maxItems=2)}, "all"), O({"neg": R("e")}, "all")]}}, **R("e")})
add("filter language", {"$defs": {"f": {"oneOf": [O({"and": A(R("f"), minItems=1)}, "all"), O({"or": A(R("f"), minItems=1)}, "all"), O({"not": R("f")}, "all"), O({"field": STR, "equals": {"type": ["string", "number", "boolean"]}}, "all")]}}, **R("f")})
add("file system", {"$defs": {"file": O({"kind": K("file"), "name": S(pattern="^[^/]+$"), "size": I(minimum=0)}, "all"), "dir": O({"kind": K("dir"), "name": S(pattern="^[^/]+$"), "entries": A({"oneOf": [R("file"), R("dir")]})}, "all")}, **R("dir")})
add("comments", {"$defs": {"c": O({"by": STR, "text": S(minLength=1, maxLength=280), "replies": A(R("c"))}, ["by", "text"])}, **A(R("c"))})
add("mutual recursion", {"$defs": {"a": O({"b": R("b")}), "b": A(R("a"), maxItems=3)}, **R("a")})
add("json value", {"$defs": {"v": {"anyOf": [NULL, BOOL, NUM, STR, A(R("v")), {"type": "object", "additionalProperties": R("v")}]}}, **R("v")})
add("menu", {"$id": "https://example.com/menu.json", "$defs": {"item": {"$anchor": "item", **O({"label": S(minLength=1), "submenu": A({"$ref": "#item"}), "shortcut": S(pattern=r"^(Ctrl\+|Alt\+|Shift\+)*[A-Z]$")}, ["label"])}}, **A({"$ref": "#item"})})
add("state machine", O({"initial": STR, "states": {"type": "object", "additionalProperties": O({"on": {"type": "object", "additionalProperties": {"oneOf": [STR, O({"target": STR, "guard": STR}, ["target"])]}}, "states": {"type": "object", "additionalProperties": {"type": "object"}}})}}, "all"))

# --- unions, conditions, merges ----------------------------------------------------------------------------------------------
add("shape union", {"oneOf": [O({"kind": K(k), **{p: N(exclusiveMinimum=0) for p in ps}}, "all") for k, ps in (("circle", ["r"]), ("rect", ["w", "h"]), ("ellipse", ["rx", "ry"]), ("ring", ["inner", "outer"]))]})
add("overlapping numbers", {"oneOf": [I(minimum=0, maximum=10), N(minimum=5, maximum=20)]})
add("string or list", {"anyOf": [STR, A(STR, minItems=1)]})
add("exactly one contact", {"type": "object", "properties": {"phone": STR, "email": S(format="email"), "post": STR}, "oneOf": [{"required": [k]} for k in ("phone", "email", "post")], "additionalProperties": False})
add("at least one contact", {"type": "object", "properties": {"phone": STR, "email": S(format="email"), "post": STR}, "anyOf": [{"required": [k]} for k in ("phone", "email", "post")]})
add("not both", {"type": "object", "properties": {"a": INT, "b": INT}, "not": {"required": ["a", "b"]}})
add("if country", {"type": "object", "properties": {"country": E("US", "CA", "NL"), "code": STR}, "required": ["country", "code"], "additionalProperties": False, "allOf": [
    {"if": {"properties": {"country": K("US")}}, "then": {"properties": {"code": {"pattern": "^[0-9]{5}(-[0-9]{4})?$"}}}},
    {"if": {"properties": {"country": K("CA")}}, "then": {"properties": {"code": {"pattern": "^[A-Z][0-9][A-Z] [0-9][A-Z][0-9]$"}}}},
    {"if": {"properties": {"country": K("NL")}}, "then": {"properties": {"code": {"pattern": "^[0-9]{4} [A-Z]{2}$"}}}}]})
add("if else amount", {"type": "object", "properties": {"member": BOOL, "discount": INT}, "required": ["member", "discount"], "if": {"properties": {"member": K(True)}}, "then": {"properties": {"discount": {"minimum": 10, "maximum": 50}}}, "else": {"properties": {"discount": K(0)}}})
add("allOf base and extension", {"$defs": {"base": {"type": "object", "properties": {"id": S(format="uuid"), "created": S(format="date-time")}, "required": ["id"]}}, "allOf": [R("base"), {"properties": {"name": STR, "id": {"minLength": 36}}, "required": ["name"]}]})
add("allOf numbers", {"allOf": [N(minimum=0), N(maximum=100), {"multipleOf": 2.5}]})
add("allOf patterns", {"type": "string", "allOf": [{"pattern": "^[a-z0-9]+$"}, {"pattern": "[0-9]"}, {"pattern": "[a-z]"}, {"minLength": 4, "maxLength": 12}]})
add("not a keyword", S(pattern="^[a-z]+$", minLength=2, maxLength=8, **{"not": {"enum": ["if", "else", "for", "while"]}}))
add("not integer", {"type": "number", "not": {"type": "integer"}, "minimum": -5, "maximum": 5})
add("dependent schema", {"type": "object", "properties": {"card": S(pattern="^[0-9]{16}$"), "billing": STR}, "dependentSchemas": {"card": {"required": ["billing"]}}, "additionalProperties": False})
add("dependencies draft 7", {"$schema": D7, "type": "object", "properties": {"a": INT, "b": INT, "c": INT}, "dependencies": {"a": ["b"], "b": {"properties": {"c": {"minimum": 3}}}}, "additionalProperties": False})
add("nullable everything", O({k: null_or(v) for k, v in {"s": STR, "i": INT, "n": NUM, "b": BOOL, "a": A(INT), "o": O({"x": INT})}.items()}, "all"))
add("type list", {"type": ["string", "integer", "boolean", "null"], "minLength": 2, "minimum": 10})
add("pattern properties overlap", {"type": "object", "patternProperties": {"^x": {"type": "integer"}, "y$": {"type": "integer", "minimum": 5}}, "additionalProperties": False})
add("typed extension keys", {"type": "object", "properties": {"name": STR}, "patternProperties": {"^x-": True}, "additionalProperties": False, "required": ["name"]})
add("contains", {"type": "array", "items": I(minimum=0, maximum=99), "contains": K(42), "maxItems": 6})
add("tuple open", {"type": "array", "prefixItems": [STR, INT], "items": BOOL, "minItems": 1})
add("tuple draft 4", {"$schema": D4, "type": "array", "items": [STR, INT], "additionalItems": False, "minItems": 2})
add("unique flags", {"type": "array", "items": E("r", "w", "x"), "uniqueItems": True})
add("max properties", {"type": "object", "additionalProperties": INT, "maxProperties": 3})
add("many required", O({k: I(minimum=0, maximum=9) for k in "abcdefghij"}, "all"))
add("many optional", O({k: BOOL for k in ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu")}))
add("closed and empty", O({}, []))
add("enum of everything", {"enum": [None, True, 0, -1.5, "", "x", [], [1, [2]], {}, {"k": {"l": None}}]})
add("const object", K({"a": [1, 2, {"b": "c"}], "d": None}))
add("unicode keys", O({"名前": STR, "größe": NUM, "😀": BOOL, "quote\"back\\slash": INT, "tab\there": INT}, ["名前"]))
add("unicode enum", E("ä", "ß", "東京", "🙂🙃", "\u0000", "line\nbreak", "\\", "\"", "\u2028"))
add("unicode pattern", S(pattern="^[\\u3040-\\u30ff]{2,6}$"))
add("emoji length", S(minLength=2, maxLength=4, pattern="^[\U0001F600-\U0001F64F]*$"))
add("escapes", S(pattern="^[\"\\\\/\\n\\t]{1,8}$"))

# --- single keywords, turned ------------------------------------------------------------------------------------------------
for i, (lo, hi) in enumerate([(0, 1), (0, 9), (5, 17), (-3, 3), (-100, -7), (99, 101), (1, 1000000), (-1, 123456), (7, 7), (0, 2147483647), (-2147483648, 2147483647), (1900, 2100)]):
    add("integer range %d" % i, I(minimum=lo, maximum=hi))
for i, (lo, hi) in enumerate([(0, 1), (-1, 1), (0.5, 0.75), (0.001, 0.01), (-273.15, 1e4), (1.5, 1.5), (99.9, 100.1), (-0.25, 0)]):
    add("number range %d" % i, N(minimum=lo, maximum=hi))
    if lo < hi:
        add("number open range %d" % i, N(exclusiveMinimum=lo, exclusiveMaximum=hi))
for i, kw in enumerate([{"minimum": 0}, {"exclusiveMinimum": 0}, {"maximum": -1}, {"minimum": 12.5}, {"maximum": 0.125}]):
    add("number half range %d" % i, N(**kw))
    add("integer half range %d" % i, I(**kw))
for m in (2, 3, 5, 7, 10, 12, 25, 60, 100, 0.5, 0.25, 0.1, 1.5):
    add("multiple of %s" % m, N(multipleOf=m, minimum=0, maximum=5000) if m != 7 else I(multipleOf=m))
for i, (lo, hi) in enumerate([(0, 0), (0, 1), (1, 1), (3, 5), (10, 20), (0, 64), (100, 120), (255, None)]):
    kw = {"minLength": lo}
    if hi is not None:
        kw["maxLength"] = hi
    add("string length %d" % i, S(**kw))
for i, p in enumerate([
        r"^[a-z]+$", r"^[A-Z][a-z]*( [A-Z][a-z]*)*$", r"^\d{3}-\d{2}-\d{4}$", r"^#[0-9a-f]{3}([0-9a-f]{3})?$", r"^v?\d+(\.\d+){0,2}$",
        r"^(https?|ftp)://[^\s/]+(/[^\s]*)?$", r"^[01]{8}$", r"^(\d{1,3}\.){3}\d{1,3}$", r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
        r"^\S+@\S+\.\S+$", r"^\+?[0-9 ()-]{7,20}$", r"^[^\x00-\x1f]{1,20}$", r"foo|bar", r"^(?!admin$)[a-z]{3,10}$", r"^(?=.*[0-9])(?=.*[a-z])[a-z0-9]{6,12}$",
        r"^a{2,4}b{0,3}c+$", r"^((a|b)*c){1,3}$", r"^[\w.-]+$", r"^\p{Lu}\p{Ll}{1,10}$", r"^$|^x$", r"\.json$", r"^[^aeiou]*$", r"^.{5}$", r"^(red|green|blue)(,(red|green|blue))*$",
        r"^[а-яё]{2,8}$", r"^[一-龥]{1,4}$"]):
    add("pattern %d" % i, S(pattern=p))
for f in ("date-time", "date", "time", "email", "hostname", "ipv4", "ipv6", "uri", "uri-reference", "uuid", "json-pointer", "duration", "regex", "uri-template", "relative-json-pointer", "iri"):
    add("format " + f, S(format=f))
    if f in ("date", "email", "ipv4", "uuid"):
        add("optional format " + f, O({"a": null_or(S(format=f)), "b": A(S(format=f), maxItems=2)}))
for i, (lo, hi) in enumerate([(0, 0), (0, 1), (1, 1), (2, 5), (0, 10), (3, 3), (20, 25)]):
    add("array length %d" % i, A(I(minimum=0, maximum=9), minItems=lo, maxItems=hi))
for depth in (2, 4, 8, 16):
    s = I(minimum=0, maximum=5)
    for _ in range(depth):
        s = A(s, minItems=1, maxItems=2)
    add("array depth %d" % depth, s)
    s = BOOL
    for k in range(depth):
        s = O({"k%d" % k: s}, "all")
    add("object depth %d" % depth, s)
for n in (1, 2, 3, 5, 6, 7, 12, 30):
    props = {"p%02d" % k: [STR, INT, BOOL, NUM][k % 4] for k in range(n)}
    add("required half of %d" % n, O(props, [k for i, k in enumerate(props) if i % 2 == 0]))
    add("all required of %d" % n, O(props, "all", n % 2 == 0))
for n in (2, 5, 20, 100):
    add("enum of %d" % n, E(*["value %d" % k for k in range(n)]))
    add("union of %d objects" % n, {"oneOf": [O({"t": K("k%d" % k), "v": [INT, STR, BOOL][k % 3]}, "all") for k in range(min(n, 40))]})
for i, (t1, t2) in enumerate([("string", "integer"), ("array", "object"), ("null", "number"), ("boolean", "string")]):
    add("two types %d" % i, {"type": [t1, t2]})
    add("not two types %d" % i, {"not": {"type": [t1, t2]}, "maxLength": 5, "maxItems": 2, "maxProperties": 2})

names = set()
for c in out:
    assert c["name"] not in names, c["name"]
    names.add(c["name"])
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "schemas.jsonl")
with open(path, "w", encoding="utf-8") as f:
    for c in out:
        f.write(json.dumps(c, ensure_ascii=False) + "\n")
print(len(out), "schemas")
