# SPDX-License-Identifier: Apache-2.0
# --device model: real logits through the generated kernel of two architectures, against the expected files. The second
# run finds the model's engine compiled.
export QUERN_TEMPLATES="$QUERN_CLI/../../kernel_templates"
cp "$QUERN_CLI/../data/logits_4x49152.f32.npy" logits.npy
for output in indices.i32 values.f32; do
    cp "$QUERN_CLI/../data/expected/softmax_topk_4x49152_f32_k256.$output.npy" "expected_${output%.*}.npy"
done
for arch in sm_90a sm_80; do
    t quern run 'softmax_topk V=49152 K=256 in=f32' logits=logits.npy --device model --arch $arch \
        --expect indices=expected_indices.npy,values=expected_values.npy
done
