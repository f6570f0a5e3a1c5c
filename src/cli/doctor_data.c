/* SPDX-License-Identifier: Apache-2.0 */
/* What lies on the disk: directories, the registry and its blobs, configuration files. */
#include "base/file.h"
#include "cli/doctor.h"
#include "cli/models/catalogue.h"
#include "cli/settings.h"
#include "registry/check.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LITTLE_DISK 5e9

/* XDG's own rule: the variable where it is an absolute path, else a folder below HOME; empty: neither. */
static void place(str *out, const char *variable, const char *below_home, const char *tail) {
    const char *dir = getenv(variable), *home = getenv("HOME");
    if (dir && dir[0] == '/')
        str_printf(out, "%s%s", dir, tail);
    else if (home && home[0] == '/')
        str_printf(out, "%s/%s%s", home, below_home, tail);
}

/* The path itself or the nearest folder above it that exists. */
static void existing(char *path) {
    for (char *slash; !dir_exists(path) && (slash = strrchr(path, '/'));) {
        if (slash == path) {
            path[1] = '\0';
            return;
        }
        *slash = '\0';
    }
}

static void check_place(doctor *d, const char *what, const char *variable, const char *below_home) {
    str  path;
    char near[1024], remedy[1200];
    str_init(&path);
    place(&path, variable, below_home, "/hearth");
    snprintf(near, sizeof near, "%s", str_cstr(&path));
    if (path.len == 0) {
        snprintf(remedy, sizeof remedy, "set HOME or %s to a folder that you own", variable);
        doctor_say(d, "paths", DOCTOR_BROKEN, remedy, "%s: no folder is known, because neither HOME nor %s is set",
                   what, variable);
    } else {
        existing(near);
        bool there = strcmp(near, str_cstr(&path)) == 0;
        snprintf(remedy, sizeof remedy, "make the folder writable: sudo chown -R \"$USER\" '%s'", near);
        if (access(near, W_OK | X_OK) != 0)
            doctor_say(d, "paths", DOCTOR_BROKEN, remedy, "%s: %s is not writable", what, near);
        else
            doctor_say(d, "paths", DOCTOR_OK, NULL, "%s: %s%s", what, str_cstr(&path),
                       there ? "" : " (does not exist yet)");
    }
    str_deinit(&path);
}

static void check_runtime_dir(doctor *d) {
    const char *dir = getenv("XDG_RUNTIME_DIR");
    struct stat st;
    if (!dir || dir[0] != '/')
        doctor_say(d, "paths", DOCTOR_WARN, "log in with a session manager, or give --socket PATH",
                   "socket: XDG_RUNTIME_DIR is not set; the server will have no Unix socket");
    else if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode))
        doctor_say(d, "paths", DOCTOR_WARN, "log in again, or give --socket PATH",
                   "socket: XDG_RUNTIME_DIR %s does not exist", dir);
    else if (st.st_uid != geteuid() || (st.st_mode & 022))
        doctor_say(d, "paths", DOCTOR_WARN, "the folder must belong to you and have the mode 700",
                   "socket: others may write to XDG_RUNTIME_DIR %s", dir);
    else
        doctor_say(d, "paths", DOCTOR_OK, NULL, "socket: %s/hearth.sock", dir);
}

static void check_token(doctor *d) {
    str         path;
    struct stat st;
    char        remedy[1200];
    str_init(&path);
    place(&path, "XDG_STATE_HOME", ".local/state", "/hearth/token");
    snprintf(remedy, sizeof remedy, "chmod 600 '%s'", str_cstr(&path));
    if (path.len && stat(str_cstr(&path), &st) == 0 && (st.st_mode & 077))
        doctor_say(d, "paths", DOCTOR_BROKEN, remedy, "token: other users can read %s and so get access to the server",
                   str_cstr(&path));
    str_deinit(&path);
}

static void check_disk(doctor *d) {
    str            path;
    char           near[1024], a[32];
    struct statvfs v;
    str_init(&path);
    place(&path, "XDG_DATA_HOME", ".local/share", "/hearth");
    snprintf(near, sizeof near, "%s", path.len ? str_cstr(&path) : "/");
    existing(near);
    if (statvfs(near, &v) != 0) {
        doctor_say(d, "disk", DOCTOR_WARN, "check whether the disk is mounted", "%s: %s", near, strerror(errno));
    } else {
        double left = (double)v.f_bavail * (double)v.f_frsize;
        doctor_bytes(a, left);
        if (left < LITTLE_DISK)
            doctor_say(d, "disk", DOCTOR_WARN, "remove models ('hearth rm'), or set XDG_DATA_HOME to a larger disk",
                       "%s are free for models at %s", a, near);
        else
            doctor_say(d, "disk", DOCTOR_OK, NULL, "%s are free for models at %s", a, near);
    }
    str_deinit(&path);
}

void doctor_paths(doctor *d) {
    check_place(d, "models", "XDG_DATA_HOME", ".local/share");
    check_place(d, "settings", "XDG_CONFIG_HOME", ".config");
    check_place(d, "state", "XDG_STATE_HOME", ".local/state");
    check_runtime_dir(d);
    check_token(d);
    check_disk(d);
}

/* --- the registry --- */

static void say_findings(doctor *d, const registry_health *h) {
    char a[32];
    if (h->lost_models.n)
        doctor_say(d, "registry", DOCTOR_BROKEN, "put the file back, or forget the name with 'hearth rm'",
                   "%d model%s without files: %s%s", h->lost_models.n, h->lost_models.n == 1 ? "" : "s",
                   h->lost_models.example, h->lost_models.n > 1 ? ", ..." : "");
    if (h->lost_blobs.n)
        doctor_say(d, "blobs", DOCTOR_BROKEN, "pull the model again: 'hearth pull'",
                   "missing or cut off: %d file%s of models, such as %.30s...", h->lost_blobs.n,
                   h->lost_blobs.n == 1 ? "" : "s", h->lost_blobs.example);
    if (h->unused_blobs.n)
        doctor_say(d, "blobs", DOCTOR_WARN, "the next 'hearth rm' of any model deletes them",
                   "%d file%s that no model uses: %s", h->unused_blobs.n, h->unused_blobs.n == 1 ? "" : "s",
                   doctor_bytes(a, (double)h->unused_blobs.bytes));
    if (h->partial.n)
        doctor_say(d, "blobs", DOCTOR_WARN, "'hearth pull' of the same name continues where the download stopped",
                   "%d download%s not complete", h->partial.n, h->partial.n == 1 ? " is" : "s are");
}

void doctor_registry(doctor *d) {
    registry       *r = NULL;
    registry_health h;
    err             e = { 0 };
    int             rc = catalogue_open_existing(&r, &e);
    if (rc == 0 && !r) {
        doctor_say(d, "registry", DOCTOR_OK, NULL, "no models are registered yet");
        return;
    }
    if (rc == 0) rc = registry_check(r, &h, &e);
    if (rc < 0)
        doctor_say(d, "registry", DOCTOR_BROKEN, "move the file away; 'hearth create' and 'hearth pull' make a new one",
                   "%s", e.msg);
    else if (!h.intact)
        doctor_say(d, "registry", DOCTOR_BROKEN, "move the file away; 'hearth create' and 'hearth pull' make a new one",
                   "the database is damaged: %s", h.damage);
    else {
        doctor_say(d, "registry", DOCTOR_OK, NULL, "intact; %d model%s", h.n_models, h.n_models == 1 ? "" : "s");
        say_findings(d, &h);
    }
    registry_close(r);
}

/* --- configuration --- */

static int check_server_yaml(const char *path, err *e) {
    char         *text = NULL;
    size_t        bytes;
    arena         mem;
    config_report r;
    config_values v;
    int           rc = file_read(&text, &bytes, path, (size_t)CONFIG_MAX_BYTES + 1, e);
    if (rc < 0) return rc;
    arena_init(&mem, 0);
    config_report_init(&r, path);
    if (config_values_init(&v, &config_server_schema, &mem)) {
        config_values_defaults(&v, &mem);
        config_read(&v, (view){ text, bytes }, CONFIG_FROM_SERVER, &mem, &r);
        if (r.n == 0) config_server_check(&v, &r);
    } else {
        r.no_memory = true;
    }
    rc = config_report_result(&r, e);
    config_report_deinit(&r);
    arena_deinit(&mem);
    free(text);
    return rc;
}

static int check_model_yaml(const char *path, err *e) {
    config_model m;
    char        *text = NULL;
    size_t       bytes;
    int          rc = file_read(&text, &bytes, path, (size_t)CONFIG_MAX_BYTES + 1, e);
    if (rc == 0) rc = config_model_read(&m, (view){ text, bytes }, path, e);
    if (rc == 0) config_model_deinit(&m);
    free(text);
    return rc;
}

static void say_config(doctor *d, int rc, const err *e, int *n) {
    (*n)++;
    if (rc < 0)
        doctor_say(d, "config", DOCTOR_BROKEN, "'hearth config check' reports line, key and remedy", "%s", e->msg);
}

void doctor_config(doctor *d) {
    const char *given = getenv("HEARTH_CONFIG");
    int         n = 0, before = d->n_of[DOCTOR_BROKEN];
    str         dir, path;
    err         e = { 0 };
    str_init(&dir);
    str_init(&path);
    settings_directory(&dir);
    if (given && *given)
        str_puts(&path, given);
    else if (dir.len)
        str_printf(&path, "%s/server.yaml", str_cstr(&dir));
    if ((given && *given) || (path.len && file_exists(str_cstr(&path))))
        say_config(d, check_server_yaml(str_cstr(&path), &e), &e, &n);
    str_puts(&dir, "/models");
    DIR *all = opendir(str_cstr(&dir));
    for (struct dirent *x; all && (x = readdir(all));) {
        if (!view_ends(view_of(x->d_name), ".yaml")) continue;
        str_clear(&path);
        str_printf(&path, "%s/%s", str_cstr(&dir), x->d_name);
        e = (err){ 0 };
        say_config(d, check_model_yaml(str_cstr(&path), &e), &e, &n);
    }
    if (all) closedir(all);
    if (d->n_of[DOCTOR_BROKEN] == before)
        doctor_say(d, "config", DOCTOR_OK, NULL, n ? "%d valid file%s" : "there are no files; the defaults apply", n,
                   n == 1 ? "" : "s");
    str_deinit(&dir);
    str_deinit(&path);
}
