/* SPDX-License-Identifier: Apache-2.0 */
/* One scalar's text to a value of a key's type: the same for files, the environment and flags. */
#include "config/parse.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* --- numbers --- */

static bool parse_real(const char *text, const char **end, double *out) {
    char *stop = NULL;
    /* Neither hexadecimal nor "nan" nor "inf" is a number here. */
    size_t n = strspn(text, "+-.0123456789eE");
    if (n == 0 || strpbrk(text, "xX")) return false;
    errno = 0;
    *out = strtod(text, &stop);
    *end = stop;
    return stop != text && errno == 0 && isfinite(*out);
}

/* 1k is 1000 here and 1Ki 1024: but a lone K, M, G means memory, as for every tool that measures it. */
bool config_parse_bytes(const char *text, double *out) {
    static const char letters[] = "KMGT";
    const char       *end;
    if (strcasecmp(text, "none") == 0) { /* where the key's range has it */
        *out = -1;
        return true;
    }
    if (!parse_real(text, &end, out)) return false;
    while (*end == ' ') end++;
    if (!*end || strcasecmp(end, "b") == 0) return true;
    const char *letter = strchr(letters, *end >= 'a' ? *end - 32 : *end);
    if (!letter || !*letter) return false;
    bool decimal = strcasecmp(end + 1, "b") == 0;
    if (end[1] && !decimal && strcasecmp(end + 1, "i") != 0 && strcasecmp(end + 1, "ib") != 0) return false;
    for (const char *p = letters; p <= letter; p++) *out *= decimal ? 1000 : 1024;
    return true;
}

static bool parse_seconds(const char *text, double *out) {
    static const struct {
        const char *unit;
        double      seconds;
    } units[] = { { "", 1 }, { "ms", 1e-3 }, { "s", 1 }, { "m", 60 }, { "h", 3600 }, { "d", 86400 } };
    double sum = 0;
    if (strcasecmp(text, "forever") == 0) {
        *out = -1;
        return true;
    }
    if (!*text) return false;
    for (bool first = true; *text; first = false) {
        const char *end;
        double      v;
        if (!parse_real(text, &end, &v) || (!first && (*text == '-' || *text == '+'))) return false;
        size_t n = strspn(end, "msdh"), i = 0;
        while (i < sizeof units / sizeof units[0] &&
               (strlen(units[i].unit) != n || strncmp(end, units[i].unit, n) != 0))
            i++;
        if (i == sizeof units / sizeof units[0] || (n == 0 && end[0])) return false;
        sum += v * units[i].seconds;
        text = end + n;
    }
    *out = sum < 0 ? -1 : sum;
    return true;
}

static bool parse_bool(const char *text, bool *out) {
    static const char *const yes[] = { "true", "yes", "on" }, *const no[] = { "false", "no", "off" };
    for (size_t i = 0; i < 3; i++) {
        if (strcasecmp(text, yes[i]) == 0) return *out = true;
        if (strcasecmp(text, no[i]) == 0) return !(*out = false);
    }
    return false;
}

/* --- what is expected, in words --- */

static void write_number(double v, config_type type, str *out) {
    static const struct {
        double      size;
        const char *name;
    } units[] = { { 1099511627776.0, "TiB" }, { 1073741824.0, "GiB" }, { 1048576.0, "MiB" }, { 1024.0, "KiB" } };
    for (size_t i = 0; type == CONFIG_BYTES && v > 0 && i < sizeof units / sizeof units[0]; i++) {
        if (fmod(v, units[i].size) != 0) continue;
        str_printf(out, "%.0f%s", v / units[i].size, units[i].name);
        return;
    }
    if (type == CONFIG_BYTES && v == -1)
        str_puts(out, "none");
    else
        str_printf(out, "%.10g", v);
}

static void write_range(const config_key *k, str *out) {
    if ((k->min == 0 && k->max == 0) || (k->min <= -0x1p63 && k->max >= 0x1p63)) return;
    str_puts(out, " from ");
    write_number(k->min, k->type, out);
    str_puts(out, " to ");
    write_number(k->max, k->type, out);
}

static void write_choices(const char *choices, str *out) {
    for (const char *p = choices; *p;) {
        size_t n = strcspn(p, "|");
        if (p != choices) str_puts(out, p[n] ? ", " : " or ");
        str_append(out, p, n);
        p += n + (p[n] != '\0');
    }
}

const char *config_type_words(const config_key *k, str *out) {
    static const char *const words[] = {
        [CONFIG_BOOL] = "true or false",
        [CONFIG_INT] = "an integer",
        [CONFIG_REAL] = "a number",
        [CONFIG_BYTES] = "a size such as 512MiB or 4GiB",
        [CONFIG_SECONDS] = "a time such as 30s, 5m or 2h",
        [CONFIG_TEXT] = "a text",
        [CONFIG_TEXTS] = "a list of texts",
        [CONFIG_LIST] = "a list of maps ('- name: ...')",
        [CONFIG_NAMED] = "a map of names to maps",
    };
    str_clear(out);
    if (k->type == CONFIG_CHOICE)
        write_choices(k->choices, out);
    else
        str_puts(out, words[k->type]);
    write_range(k, out);
    return str_cstr(out);
}

/* --- a value --- */

static void nearest_choice(const char *choices, const char *text, str *out) {
    char        copy[256];
    const char *list[32];
    size_t      n = 0;
    snprintf(copy, sizeof copy, "%s", choices);
    for (char *p = copy; p && n < 32;) {
        char *bar = strchr(p, '|');
        if (bar) *bar++ = '\0';
        list[n++] = p;
        p = bar;
    }
    const char *best = config_nearest(text, list, n);
    if (best) str_printf(out, "; did you mean %s?", best);
}

static bool is_choice(const char *choices, const char *text) {
    size_t len = strlen(text);
    for (const char *p = choices; *p;) {
        size_t n = strcspn(p, "|");
        if (n == len && memcmp(p, text, n) == 0) return true;
        p += n + (p[n] != '\0');
    }
    return false;
}

static bool parse_typed(const config_key *k, const char *text, double unit, config_value *v) {
    const char *end = "";
    bool        ok = true;
    v->text = text;
    switch (k->type) {
    case CONFIG_BOOL: return parse_bool(text, &v->boolean);
    case CONFIG_INT: ok = parse_real(text, &end, &v->real) && !*end && v->real == floor(v->real); break;
    case CONFIG_REAL: ok = parse_real(text, &end, &v->real) && !*end; break;
    case CONFIG_BYTES: ok = config_parse_bytes(text, &v->real); break;
    case CONFIG_SECONDS: ok = parse_seconds(text, &v->real); break;
    case CONFIG_CHOICE: return is_choice(k->choices, text);
    default: return true;
    }
    if (!ok) return false;
    if (unit > 0) v->real *= unit;
    if (k->type == CONFIG_INT && unit <= 0 && !strpbrk(text, ".eE")) { /* seeds need all their digits */
        errno = 0;
        v->integer = strtoll(text, NULL, 10);
        return errno == 0;
    }
    if (k->type == CONFIG_INT || k->type == CONFIG_BYTES) {
        if (!(v->real >= -9223372036854775808.0 && v->real < 9223372036854775808.0)) return false;
        v->integer = (int64_t)v->real;
    }
    return true;
}

int config_parse_scalar(const config_key *k, const char *text, double unit, config_value *v, err *e) {
    str words, more;
    int rc = 0;
    str_init(&words);
    str_init(&more);
    if (!parse_typed(k, text, unit, v)) {
        if (k->type == CONFIG_CHOICE) nearest_choice(k->choices, text, &more);
        if (k->type == CONFIG_BOOL && (strcmp(text, "1") == 0 || strcmp(text, "0") == 0))
            str_printf(&more, "; write %s", *text == '1' ? "true" : "false");
        rc = err_set(e, ERR_ARG, "expected %s, found '%.60s'%s", config_type_words(k, &words), text, str_cstr(&more));
    } else if ((k->type == CONFIG_INT || k->type == CONFIG_REAL || k->type == CONFIG_BYTES ||
                k->type == CONFIG_SECONDS) &&
               (k->min != 0 || k->max != 0) && !(v->real >= k->min && v->real <= k->max)) {
        rc = err_set(e, ERR_ARG, "'%.60s' is out of range; expected %s", text, config_type_words(k, &words));
    } else if (k->refused && (k->type != CONFIG_BOOL || v->boolean)) {
        rc = err_set(e, ERR_UNSUPPORTED, "%s", k->refused);
    }
    str_deinit(&words);
    str_deinit(&more);
    return rc;
}

/* --- and back --- */

static void write_text(const char *text, bool json, str *out) {
    bool plain = !json && *text && !strpbrk(text, ":#{}[],&*!|>'\"%@`\\\n\t") && text[0] != '-' && text[0] != '?' &&
                 text[0] != ' ' && text[strlen(text) - 1] != ' ' && strcasecmp(text, "null") != 0 &&
                 strcmp(text, "~") != 0;
    if (plain)
        str_puts(out, text);
    else
        str_put_json(out, text, strlen(text));
}

static void write_items(const config_value *v, bool json, str *out) {
    bool list = v->n_items && !v->items[0].name;
    str_push(out, list || !v->n_items ? '[' : '{');
    for (size_t i = 0; i < v->n_items; i++) {
        const config_values *item = &v->items[i];
        bool                 first = true;
        if (i) str_puts(out, ", ");
        if (item->name) {
            str_put_json(out, item->name, strlen(item->name));
            str_puts(out, ": ");
        }
        str_push(out, '{');
        for (size_t j = 0; j < item->schema->n; j++) {
            if (!item->v[j].origin) continue;
            str_printf(out, "%s\"%s\": ", first ? "" : ", ", item->schema->keys[j].path);
            config_value_write(&item->schema->keys[j], &item->v[j], json, out);
            first = false;
        }
        str_push(out, '}');
    }
    str_push(out, list || !v->n_items ? ']' : '}');
}

void config_value_write(const config_key *k, const config_value *v, bool json, str *out) {
    if (!v->origin) {
        str_puts(out, "null");
        return;
    }
    if (k->secret) {
        str_puts(out, "\"***\"");
        return;
    }
    switch (k->type) {
    case CONFIG_BOOL: str_puts(out, v->boolean ? "true" : "false"); break;
    case CONFIG_INT: str_printf(out, "%lld", (long long)v->integer); break;
    case CONFIG_REAL: str_printf(out, "%.10g", v->real); break;
    case CONFIG_BYTES:
        if (json)
            str_printf(out, "%lld", (long long)v->integer);
        else
            write_number(v->real, CONFIG_BYTES, out);
        break;
    case CONFIG_SECONDS:
        if (v->real < 0)
            str_puts(out, json ? "-1" : "forever");
        else
            str_printf(out, json ? "%.10g" : "%.10gs", v->real);
        break;
    case CONFIG_TEXT:
    case CONFIG_CHOICE: write_text(v->text, json, out); break;
    case CONFIG_TEXTS:
        str_push(out, '[');
        for (size_t i = 0; i < v->n_texts; i++) {
            if (i) str_puts(out, ", ");
            write_text(v->texts[i], true, out);
        }
        str_push(out, ']');
        break;
    case CONFIG_LIST:
    case CONFIG_NAMED: write_items(v, json, out); break;
    }
}
