/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the web UI inside the program, as web/build.cmake found them. A build without them has an empty table. */
#ifndef SERVER_OPS_UI_ASSETS_H
#define SERVER_OPS_UI_ASSETS_H

#include <stdbool.h>

typedef struct ui_asset {
    const char          *name;   /* "index.html", "app-1a2b3c4d.js"; NULL ends the table */
    const char          *type;   /* a content type */
    const char          *digest; /* SHA-256 of the file as it is stored, in hex */
    bool                 gzip;   /* how it is stored */
    const unsigned char *begin, *end;
} ui_asset;

extern const ui_asset ui_assets[];

#endif
