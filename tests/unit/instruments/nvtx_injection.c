/* A collector of NVTX ranges for the tests: writes one line an event to the file named by NVTX_TEST_LOG. */
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *out;
static uint64_t ranges;

static nvtxDomainHandle_t domain_create(const char *name) {
    fprintf(out, "domain %s\n", name);
    fflush(out);
    return (nvtxDomainHandle_t)strdup(name);
}

static nvtxStringHandle_t register_string(nvtxDomainHandle_t domain, const char *text) {
    (void)domain;
    return (nvtxStringHandle_t)strdup(text);
}

static void name_category(nvtxDomainHandle_t domain, uint32_t category, const char *name) {
    fprintf(out, "category %s %u %s\n", (const char *)domain, category, name);
    fflush(out);
}

static nvtxRangeId_t range_start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *a) {
    const char *text = a->messageType == NVTX_MESSAGE_TYPE_REGISTERED ? (const char *)a->message.registered : "?";
    fprintf(out, "start %llu %s %u %s ", (unsigned long long)++ranges, (const char *)domain, a->category, text);
    if (a->payloadType == NVTX_PAYLOAD_TYPE_INT64) fprintf(out, "%lld\n", (long long)a->payload.llValue);
    else if (a->payloadType == NVTX_PAYLOAD_TYPE_DOUBLE) fprintf(out, "%g\n", a->payload.dValue);
    else fprintf(out, "-\n");
    fflush(out);
    return ranges;
}

static void range_end(nvtxDomainHandle_t domain, nvtxRangeId_t id) {
    fprintf(out, "end %llu %s\n", (unsigned long long)id, (const char *)domain);
    fflush(out);
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
    return 1;
}
