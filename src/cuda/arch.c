// SPDX-License-Identifier: Apache-2.0
// The table of architectures, and which of them serve a device. Called by runtime, ops and tools; asks no driver.
//
// Threads, CTAs, registers and shared memory: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
// SMs: of the part in the comment, the one such devices are mostly seen as.
#include "cuda/arch.h"

#include <string.h>

#include "base/nearest.h"
#include "base/text.h"

enum { KIB = 1024, REGISTERS = 65536 };

#define LIMITS_80  2048, 32, REGISTERS, 164 * KIB, 163 * KIB
#define LIMITS_86  1536, 16, REGISTERS, 100 * KIB, 99 * KIB
#define LIMITS_89  1536, 24, REGISTERS, 100 * KIB, 99 * KIB
#define LIMITS_90  2048, 32, REGISTERS, 228 * KIB, 227 * KIB
#define LIMITS_100 2048, 32, REGISTERS, 228 * KIB, 227 * KIB
#define LIMITS_120 1536, 24, REGISTERS, 100 * KIB, 99 * KIB

static const qn_arch archs[] = {
    // name    cc   suffix SMs limits    cluster TMEM cp.async bulk wgmma tcgen05
    {"sm_80", 80, 0, 108, LIMITS_80, 1, 0, true, false, false, false},        // A100
    {"sm_86", 86, 0, 84, LIMITS_86, 1, 0, true, false, false, false},         // A40, RTX A6000
    {"sm_89", 89, 0, 142, LIMITS_89, 1, 0, true, false, false, false},        // L40S
    {"sm_90", 90, 0, 132, LIMITS_90, 16, 0, true, true, false, false},        // H100, H200
    {"sm_90a", 90, 'a', 132, LIMITS_90, 16, 0, true, true, true, false},      //
    {"sm_100", 100, 0, 148, LIMITS_100, 16, 0, true, true, false, false},     // B200
    {"sm_100f", 100, 'f', 148, LIMITS_100, 16, 512, true, true, false, true}, //
    {"sm_100a", 100, 'a', 148, LIMITS_100, 16, 512, true, true, false, true}, //
    {"sm_103a", 103, 'a', 148, LIMITS_100, 16, 512, true, true, false, true}, // B300
    {"sm_120", 120, 0, 188, LIMITS_120, 8, 0, true, true, false, false},      // RTX PRO 6000 Blackwell
    {"sm_120a", 120, 'a', 188, LIMITS_120, 8, 0, true, true, false, false},   //
    {"sm_121a", 121, 'a', 48, LIMITS_120, 8, 0, true, true, false, false},    // GB10
};

const qn_arch *qn_arch_list(size_t *count)
{
    *count = QN_COUNT(archs);
    return archs;
}

quern_status qn_arch_find(const char *name, const qn_arch **arch)
{
    qn_text known = QN_TEXT_INIT;
    qn_nearest nearest;

    for (size_t i = 0; name && i < QN_COUNT(archs); i++) {
        if (strcmp(archs[i].name, name)) continue;
        *arch = &archs[i];
        return QUERN_OK;
    }
    qn_nearest_init(&nearest, name, name ? strlen(name) : 0);
    for (size_t i = 0; i < QN_COUNT(archs); i++) {
        qn_text_putf(&known, "%s%s", i ? ", " : "", archs[i].name);
        qn_nearest_offer(&nearest, archs[i].name);
    }
    quern_status status = qn_fail(QUERN_UNKNOWN_ARCH, "architecture '%s' is not known%s; the known ones are %s",
                                  name ? name : "", qn_nearest_hint(&nearest), qn_text_string(&known));
    qn_text_fini(&known);
    return status;
}

// Whether code for this architecture runs on a device: 'a' on exactly its own, 'f' on its family's later members, plain
// on later minors of its major. The families of CUDA 13 are {10.0, 10.3} and {12.0, 12.1}, which are majors too.
static bool runs_on(const qn_arch *arch, int cc)
{
    if (arch->suffix == 'a') return arch->cc == cc;
    return arch->cc / 10 == cc / 10 && arch->cc <= cc;
}

static int suffix_rank(char suffix)
{
    return suffix == 'a' ? 2 : suffix == 'f' ? 1 : 0;
}

// Exact 'a' before all; then family code, then plain code, the nearest minor first in each.
static bool is_better(const qn_arch *one, const qn_arch *other)
{
    if (suffix_rank(one->suffix) != suffix_rank(other->suffix))
        return suffix_rank(one->suffix) > suffix_rank(other->suffix);
    return one->cc > other->cc;
}

size_t qn_arch_targets(int cc, const qn_arch *targets[8])
{
    size_t count = 0;

    for (size_t i = 0; i < QN_COUNT(archs); i++) {
        if (!runs_on(&archs[i], cc) || count == 8) continue;
        size_t at = count++;
        for (; at > 0 && is_better(&archs[i], targets[at - 1]); at--) targets[at] = targets[at - 1];
        targets[at] = &archs[i];
    }
    return count;
}
