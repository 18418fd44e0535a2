// SPDX-License-Identifier: Apache-2.0
// One compile, with a time limit and a way to cancel it. Called by runtime/obtain.c.
//   (1) NVRTC polls the flow callback while it works. A version without it (before 12.8) can be stopped only before it
//       begins.
//   (2) Once the callback has said stop it keeps saying so, from any thread: NVRTC asks for that.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda/nvrtc.h"
#include "cuda/nvrtc_guard.h"

typedef enum stop_reason { GO_ON = 0, TIMED_OUT, CANCELLED } stop_reason;

typedef struct flow {
    const qn_compile *request;
    int64_t started_us;
    _Atomic int stop;
} flow;

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int poll_flow(void *payload, void *reserved)
{
    flow *f = payload;
    int stop = atomic_load(&f->stop);

    (void)reserved;
    if (stop == GO_ON) {
        if (f->request->cancel && f->request->cancel(f->request->cancel_user))
            stop = CANCELLED;
        else if (f->request->timeout_ms >= 0 && now_us() - f->started_us > (int64_t)f->request->timeout_ms * 1000)
            stop = TIMED_OUT;
        if (stop != GO_ON) atomic_store(&f->stop, stop);
    }
    return stop != GO_ON;
}

static void put_options(const qn_compile *request, qn_text *text)
{
    for (size_t i = 0; i < request->option_count; i++) qn_text_putf(text, " %s", request->options[i]);
}

// A failed NVRTC call, with the options (an "invalid option" alone helps nobody), the version and the library's path.
static quern_status call_failed(const qn_nvrtc *nvrtc, const qn_compile *request, const char *call, nvrtcResult result,
                                const char *log)
{
    qn_text options = QN_TEXT_INIT;
    quern_status status = result == NVRTC_ERROR_OUT_OF_MEMORY ? QUERN_OUT_OF_MEMORY : QUERN_COMPILE_FAILED;

    put_options(request, &options);
    qn_fail(status, "%s: %s: %s\noptions:%s\ncompiler: %d.%d, %s%s%s", request->name, call,
            nvrtc->nvrtcGetErrorString(result), qn_text_string(&options), nvrtc->major, nvrtc->minor, nvrtc->path,
            *log ? "\n" : "", log);
    qn_text_fini(&options);
    return status;
}

static void read_log(const qn_nvrtc *nvrtc, nvrtcProgram program, qn_text *log)
{
    size_t bytes = 0;

    if (nvrtc->nvrtcGetProgramLogSize(program, &bytes) != NVRTC_SUCCESS || bytes <= 1) return;
    char *text = malloc(bytes);
    if (text && nvrtc->nvrtcGetProgramLog(program, text) == NVRTC_SUCCESS) {
        size_t length = strnlen(text, bytes);
        while (length > 0 && text[length - 1] == '\n') length--;
        qn_text_put(log, text, length);
    }
    free(text);
}

static quern_status read_image(const qn_nvrtc *nvrtc, const qn_compile *request, nvrtcProgram program,
                               qn_compiled *compiled)
{
    size_t bytes = 0;
    nvrtcResult result = nvrtc->nvrtcGetCUBINSize(program, &bytes);

    if (result != NVRTC_SUCCESS || !bytes) {
        return call_failed(nvrtc, request, "nvrtcGetCUBINSize", result,
                           bytes ? "" : "no cubin was made: --gpu-architecture must be sm_…");
    }
    char *image = malloc(bytes);
    if (!image) return qn_fail(QUERN_OUT_OF_MEMORY, "no memory for a cubin of %zu bytes", bytes);
    result = nvrtc->nvrtcGetCUBIN(program, image);
    if (result == NVRTC_SUCCESS) qn_text_put(&compiled->image, image, bytes);
    free(image);
    if (result != NVRTC_SUCCESS) return call_failed(nvrtc, request, "nvrtcGetCUBIN", result, "");
    return qn_text_check(&compiled->image);
}

static quern_status stopped(const flow *f)
{
    const qn_compile *request = f->request;

    if (atomic_load(&f->stop) == CANCELLED)
        return qn_fail(QUERN_CANCELLED, "%s: the compile was cancelled by the caller", request->name);
    return qn_fail(
        QUERN_COMPILE_TIMEOUT,
        "%s: the compile ran for %lld ms, past its limit of %d ms; raise compile_timeout_ms or make the spec smaller",
        request->name, (long long)((now_us() - f->started_us) / 1000), request->timeout_ms);
}

static quern_status run(const qn_nvrtc *nvrtc, flow *f, nvrtcProgram program, qn_compiled *compiled)
{
    const qn_compile *request = f->request;
    nvrtcResult result;

    if (nvrtc->nvrtcSetFlowCallback) {
        result = nvrtc->nvrtcSetFlowCallback(program, poll_flow, f);
        if (result != NVRTC_SUCCESS) return call_failed(nvrtc, request, "nvrtcSetFlowCallback", result, "");
    }
    if (poll_flow(f, NULL)) return stopped(f);
    result = nvrtc->nvrtcCompileProgram(program, (int)request->option_count, request->options);
    // A compile that finished although it was told to stop has a result all the same.
    if (result != NVRTC_SUCCESS && atomic_load(&f->stop) != GO_ON) return stopped(f);
    read_log(nvrtc, program, &compiled->log);
    if (result != NVRTC_SUCCESS) {
        return call_failed(nvrtc, request, "nvrtcCompileProgram", result, qn_text_string(&compiled->log));
    }
    return read_image(nvrtc, request, program, compiled);
}

// A kernel that is not there would be found out by the driver only, on another machine.
static quern_status read_resources(const qn_compile *request, qn_compiled *compiled)
{
    qn_cubin_resources(compiled->image.bytes, compiled->image.length, request->entry, &compiled->registers,
                       &compiled->shared_bytes, &compiled->local_bytes);
    if (!request->entry || qn_cubin_has_entry(compiled->image.bytes, compiled->image.length, request->entry))
        return QUERN_OK;
    return qn_fail(QUERN_COMPILE_FAILED,
                   "%s: the compiled text has no kernel '%s': it must be an extern \"C\" __global__ function",
                   request->name, request->entry);
}

// From the first call of NVRTC to the last.
static quern_status create_and_run(const qn_nvrtc *nvrtc, flow *f, qn_compiled *made)
{
    const qn_compile *request = f->request;
    nvrtcProgram program = NULL;
    nvrtcResult result = nvrtc->nvrtcCreateProgram(&program, request->source, request->name, (int)request->header_count,
                                                   request->header_texts, request->header_names);

    if (result != NVRTC_SUCCESS) return call_failed(nvrtc, request, "nvrtcCreateProgram", result, "");
    quern_status status = run(nvrtc, f, program, made);
    nvrtc->nvrtcDestroyProgram(&program);
    return status;
}

quern_status qn_nvrtc_compile(const qn_nvrtc *nvrtc, const qn_compile *request, qn_compiled *compiled)
{
    flow f = {request, now_us(), GO_ON};
    qn_compiled made = {QN_TEXT_INIT, QN_TEXT_INIT, 0, -1, -1, -1};

    if (!qn_nvrtc_enter()) return qn_nvrtc_usable();
    quern_status status = create_and_run(nvrtc, &f, &made);
    qn_nvrtc_leave();
    if (status == QUERN_OK) status = read_resources(request, &made);
    if (status != QUERN_OK) {
        qn_compiled_fini(&made);
        return status;
    }
    made.compile_us = now_us() - f.started_us;
    *compiled = made;
    return QUERN_OK;
}

void qn_compiled_fini(qn_compiled *compiled)
{
    qn_text_fini(&compiled->image);
    qn_text_fini(&compiled->log);
}
