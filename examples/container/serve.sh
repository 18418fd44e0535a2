#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# serve.sh MANIFEST [command…]: proves that nothing will be compiled, then becomes the service. In strict mode `quern warm`
# finds every kernel of the manifest in the sealed file ($QUERN_SEALED) or fails and names the first that is missing; it
# needs neither a GPU nor NVRTC. The service opens its quern in the same mode: a spec that nobody put into the manifest is
# an error that says so, not a compile in the middle of a request.
set -eu
manifest=$1
shift
quern=$(dirname "$0")/bin/quern
[ -x "$quern" ] || quern=quern
QUERN_MODE=strict "$quern" warm "@$manifest" --db '' >&2
[ $# -eq 0 ] || exec "$@"
