/* A collector of NVTX events for the tests: writes one line an event, fields apart by tabs, to NVTX_TEST_LOG. */
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *out;
static uint64_t ranges;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void line(const char *format, ...) {
    va_list values;
    va_start(values, format);
    pthread_mutex_lock(&lock);
    vfprintf(out, format, values);
    fputc('\n', out);
    fflush(out);
    pthread_mutex_unlock(&lock);
    va_end(values);
}

static const char *text_of(const nvtxEventAttributes_t *a) {
    if (a->messageType == NVTX_MESSAGE_TYPE_REGISTERED) return (const char *)a->message.registered;
    return a->messageType == NVTX_MESSAGE_TYPE_ASCII ? a->message.ascii : "?";
}

static const char *payload_of(const nvtxEventAttributes_t *a, char *into, size_t size) {
    switch (a->payloadType) {
        case NVTX_PAYLOAD_TYPE_INT64: snprintf(into, size, "int64 %lld", (long long)a->payload.llValue); break;
        case NVTX_PAYLOAD_TYPE_UNSIGNED_INT64:
            snprintf(into, size, "uint64 %llu", (unsigned long long)a->payload.ullValue);
            break;
        case NVTX_PAYLOAD_TYPE_DOUBLE: snprintf(into, size, "double %.17g", a->payload.dValue); break;
        case NVTX_PAYLOAD_UNKNOWN: snprintf(into, size, "-"); break;
        default: snprintf(into, size, "type %d", a->payloadType);
    }
    return into;
}

static nvtxDomainHandle_t domain_create(const char *name) {
    line("domain\t%s", name);
    return (nvtxDomainHandle_t)strdup(name);
}

static nvtxStringHandle_t register_string(nvtxDomainHandle_t domain, const char *text) {
    (void)domain;
    return (nvtxStringHandle_t)strdup(text);
}

static void name_category(nvtxDomainHandle_t domain, uint32_t category, const char *name) {
    line("category\t%s\t%u\t%s", (const char *)domain, category, name);
}

static nvtxRangeId_t range_start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *a) {
    char payload[64];
    uint64_t id = __atomic_add_fetch(&ranges, 1, __ATOMIC_SEQ_CST);
    line("start\t%llu\t%s\t%u\t%s\t%s\t%08x", (unsigned long long)id, (const char *)domain, a->category, text_of(a),
         payload_of(a, payload, sizeof payload), a->color);
    return id;
}

static void range_end(nvtxDomainHandle_t domain, nvtxRangeId_t id) {
    line("end\t%llu\t%s", (unsigned long long)id, (const char *)domain);
}

static int range_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *a) {
    line("push\t%s\t%s", (const char *)domain, text_of(a));
    return 0;
}

#define SLOT(id, fn) *table[NVTX_CBID_CORE2_##id] = (NvtxFunctionPointer)(fn)

NVTX_DYNAMIC_EXPORT int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
    const NvtxExportTableCallbacks *callbacks = (const NvtxExportTableCallbacks *)get(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned int size = 0;
    out = fopen(getenv("NVTX_TEST_LOG"), "w");
    if (!out || !callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
    SLOT(DomainCreateA, domain_create);
    SLOT(DomainRegisterStringA, register_string);
    SLOT(DomainNameCategoryA, name_category);
    SLOT(DomainRangeStartEx, range_start);
    SLOT(DomainRangeEnd, range_end);
    SLOT(DomainRangePushEx, range_push);
    return 1;
}
