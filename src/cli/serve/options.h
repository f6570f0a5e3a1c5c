/* SPDX-License-Identifier: Apache-2.0 */
/* Settings as the options of the host and of the server. Texts are borrowed from the settings. */
#ifndef CLI_SERVE_OPTIONS_H
#define CLI_SERVE_OPTIONS_H

#include "cli/settings.h"
#include "host/host.h"
#include "server/server.h"

int serve_host_options(settings *s, host_options *out, err *e);
/* Everything but host, library, version, default_model and inherited sockets; socket_path is NULL where none is set. */
void serve_server_options(const config_values *v, server_options *out);

#endif
