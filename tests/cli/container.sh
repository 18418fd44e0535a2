# SPDX-License-Identifier: Apache-2.0
# The stages of examples/container by hand, with a smaller vocabulary: warm a manifest, verify, seal; then serve without
# NVRTC and without a GPU, and fail at start when the file lacks something.
container=$QUERN_CLI/../../examples/container
small='s/"sm_90a", "sm_100a"/"sm_90a"/; s/V=128256 K=50/V=16 K=4/; s/"rows": \[1, 64\]/"rows": [1, 4]/'
serve() { sh "$container/serve.sh" "$@" 2>&1; }
sed "$small" "$container/manifest.json" >manifest.json
t quern warm @manifest.json --db kernels.db
t quern cache verify kernels.db
t quern cache seal kernels.db
export QUERN_SEALED="$PWD/kernels.db" QUERN_NVRTC=/nonexistent/libnvrtc.so
t serve manifest.json echo serving
sed 's/V=16/V=17/' manifest.json >more.json
t serve more.json echo serving
