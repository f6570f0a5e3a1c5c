/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formats as patterns over the whole text. Each accepts only texts that the format's specification allows; where the
 * specification allows more than is ever written (quoted local parts, IPvFuture hosts), the pattern is narrower. A name
 * that is not in the list is an annotation.
 */
#include "grammar/schema/priv.h"

#include <string.h>

#define YEAR_DAYS                                                                                                      \
    "([0-9]{4}-(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|[0-9]{4}-(0[469]|11)-(0[1-9]|[12][0-9]|30)|"                  \
    "[0-9]{4}-02-(0[1-9]|1[0-9]|2[0-8])|"                                                                              \
    "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)"
#define CLOCK "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,12})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4 OCTET "(\\." OCTET "){3}"
#define H16 "[0-9A-Fa-f]{1,4}"
#define LS32 "(" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                                           \
    "((" H16 ":){6}" LS32 "|::(" H16 ":){5}" LS32 "|(" H16 ")?::(" H16 ":){4}" LS32 "|((" H16 ":){0,1}" H16            \
    ")?::(" H16 ":){3}" LS32 "|((" H16 ":){0,2}" H16 ")?::(" H16 ":){2}" LS32 "|((" H16 ":){0,3}" H16 ")?::" H16       \
    ":" LS32 "|((" H16 ":){0,4}" H16 ")?::" LS32 "|((" H16 ":){0,5}" H16 ")?::" H16 "|((" H16 ":){0,6}" H16 ")?::)"
#define ATEXT "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
#define EMAIL ATEXT "(\\.?" ATEXT "){0,63}@(" LABEL "\\.)+" LABEL
/* At most 253 characters in all: four long labels or fifteen short ones. */
#define LONG_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,59}[A-Za-z0-9])?"
#define SHORT_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,13}[A-Za-z0-9])?"
#define HOSTNAME "((" LONG_LABEL "\\.){0,3}" LONG_LABEL "|(" SHORT_LABEL "\\.){0,14}" SHORT_LABEL ")"
#define PCT "%[0-9A-Fa-f]{2}"
#define UNRESERVED "A-Za-z0-9._~\\-"
#define SUB "!$&'()*+,;="
#define PCHAR(more) "([" UNRESERVED SUB ":@" more "]|" PCT ")"
#define HOST(more) "(\\[" IPV6 "\\]|([" UNRESERVED SUB more "]|" PCT ")*)"
#define AUTHORITY(more) "(([" UNRESERVED SUB ":" more "]|" PCT ")*@)?" HOST(more) "(:[0-9]{0,5})?"
#define QUERY(more) "(\\?(" PCHAR(more) "|[/?])*)?(#(" PCHAR(more) "|[/?])*)?"
#define ABEMPTY(more) "(/" PCHAR(more) "*)*"
#define ABSOLUTE(more) "/(" PCHAR(more) "+" ABEMPTY(more) ")?"
#define ROOTLESS(more) PCHAR(more) "+" ABEMPTY(more)
#define NOSCHEME(more) "([" UNRESERVED SUB "@" more "]|" PCT ")+" ABEMPTY(more)
#define URI(more)                                                                                                      \
    "[A-Za-z][A-Za-z0-9+.-]*:(//" AUTHORITY(more) ABEMPTY(more) "|" ABSOLUTE(more) "|" ROOTLESS(more) ")" QUERY(more)
#define RELATIVE(more) "(//" AUTHORITY(more) ABEMPTY(more) "|" ABSOLUTE(more) "|" NOSCHEME(more) "|)" QUERY(more)
#define UCS "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF"
#define VARNAME "([A-Za-z0-9_]|" PCT ")+(\\.([A-Za-z0-9_]|" PCT ")+)*"
#define VARSPEC VARNAME "(:[1-9][0-9]{0,3}|\\*)?"
/* Regular expressions with groups inside groups up to three deep, without back references. Ranges and counts only where
 * their order can be seen from the first digits. */
#define RX_ESCAPE "\\\\([dDwWsStnrfv.*+?()\\[\\]{}|/\\\\^$]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})"
#define RX_SPAN "([a-e]-[f-z]|[a-y]-z|[A-E]-[F-Z]|[A-Y]-Z|[0-4]-[5-9]|[0-8]-9)"
#define RX_CLASS "\\[\\^?(" RX_SPAN "|[^\\\\\\[\\]^-]|" RX_ESCAPE "|\\\\-)+-?\\]"
#define RX_COUNT "\\{([0-9]{1,3},?|[01],[1-9][0-9]{0,2}|[2-5],([6-9]|[1-9][0-9]{1,2}))\\}"
#define RX_ATOM(group) "([^\\\\^$.*+?()\\[\\]{}|/]|\\.|" RX_ESCAPE "|" RX_CLASS group ")"
#define RX_TERM(group) "(\\^|\\$|\\\\b|" RX_ATOM(group) "([*+?]\\??|" RX_COUNT ")?)"
#define RX_GROUP(inner) "|\\((\\?:)?(" inner ")\\)"
#define RX_SEQ(group) RX_TERM(group) "*(\\|" RX_TERM(group) "*)*"

static const struct {
    const char *name, *pattern;
} formats[] = {
    { "date-time", YEAR_DAYS "[Tt]" CLOCK },
    { "date", YEAR_DAYS },
    { "time", CLOCK },
    { "email", EMAIL },
    { "uri", URI("") },
    { "uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}" },
    { "ipv4", IPV4 },
    { "ipv6", IPV6 },
    { "hostname", HOSTNAME },
    { "uri-reference", "(" URI("") "|" RELATIVE("") ")" },
    { "iri", URI(UCS) },
    { "iri-reference", "(" URI(UCS) "|" RELATIVE(UCS) ")" },
    {
        "uri-template",
        "([" UNRESERVED "!#$&()*+,/:;=?@\\[\\]]|" PCT "|\\{[+#./;?&]?" VARSPEC "(," VARSPEC ")*\\})*",
    },
    { "json-pointer", "(/([^~/]|~[01])*)*" },
    { "relative-json-pointer", "(0|[1-9][0-9]{0,8})(#|(/([^~/]|~[01])*)*)" },
    {
        "duration",
        "P([0-9]{1,9}W|([0-9]{1,9}Y([0-9]{1,9}M([0-9]{1,9}D)?)?|[0-9]{1,9}M([0-9]{1,9}D)?|[0-9]{1,9}D)"
        "(T([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S))?|"
        "T([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S))",
    },
    { "idn-email", EMAIL },
    { "idn-hostname", HOSTNAME },
    { "regex", RX_SEQ(RX_GROUP(RX_SEQ(RX_GROUP(RX_SEQ(""))))) },
};

bool schema_format(schema_ctx *c, view name, ir_rx *out) {
    size_t n = sizeof formats / sizeof *formats, i = 0;
    err    why = { 0 };
    while (i < n && !view_eq_c(name, formats[i].name)) i++;
    if (i == n) return false;
    if (!c->format_known[i]) {
        const char *p = formats[i].pattern;
        if (ir_rx_parse(c->g, p, strlen(p), 0, &c->format_cache[i], &why) < 0) {
            schema_fail(c, NULL, why.code, "format %s: %.300s", formats[i].name, why.msg);
            return false;
        }
        c->format_known[i] = true;
    }
    *out = c->format_cache[i];
    return true;
}
