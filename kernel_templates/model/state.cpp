// SPDX-License-Identifier: Apache-2.0
// State that a family of instructions keeps with a CTA (tensor memory, its allocator): made on first use, zeroed.
#include "machine.h"

namespace qm {

void *cta_state(const void *key, size_t bytes, void (*end)(void *state, Place at), Place at)
{
    Cta *cta = current()->cta;
    for (auto &state : cta->states)
        if (state->key == key) {
            if (state->bytes.size() != bytes) fail(at, "state of %zu bytes, kept as %zu", bytes, state->bytes.size());
            return state->bytes.data();
        }
    cta->states.emplace_back(new CtaState{key, std::vector<char>(bytes), end});
    return cta->states.back()->bytes.data();
}

} // namespace qm
