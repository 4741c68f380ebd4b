/* A stand-in for AMD's libamd_smi.so: the calls that the agent makes through AMD's binding. The binding looks up every
 * function that there is when it is imported: the rest is made from its own list of names (see __init__.py), and answers
 * "not supported". Layouts are those of ROCm 7.0. */
#include "stub.h"

enum { NOT_SUPPORTED = 2, API_FAILED = 7, NOT_INIT = 32 };
enum { XGMI = 2 };

typedef void *handle;
static handle handle_of(int card) { return (handle)(uintptr_t)(card + 1); }
static int card_of(handle of) { return (int)(uintptr_t)of - 1; }
static int initialised;

#define ABOUT(of) do { if (!initialised) return NOT_INIT; ENTER(card_of(of)); } while (0)

int amdsmi_init(uint64_t flags) { (void)flags; load_named("VENDOR_STUB_SCENARIO"); ENTER(-1); initialised = 1; return 0; }
int amdsmi_shut_down(void) { ENTER(-1); initialised = 0; return 0; }
void amdsmi_free_name_value_pairs(void *pairs) { (void)pairs; }

struct version { uint32_t major, minor, release; const char *build; };
int amdsmi_get_lib_version(struct version *told) { ENTER(-1); *told = (struct version){26, 0, 0, "stub"}; return 0; }

int amdsmi_get_socket_handles(uint32_t *count, handle *into)
{
    ENTER(-1);
    *count = (uint32_t)now.cards;
    for (int card = 0; into && card < now.cards; card++) into[card] = handle_of(card);
    return 0;
}

int amdsmi_get_processor_handles(handle socket, uint32_t *count, handle *into)
{
    ENTER(-1);
    *count = 1;
    if (into) *into = socket;
    return 0;
}

int amdsmi_get_gpu_device_uuid(handle of, unsigned *length, char *text)
{
    ABOUT(of);
    snprintf(text, *length, "aaff74a1-0000-1000-80%02x-000000000000", (unsigned)card_of(of));
    return 0;
}

int amdsmi_get_gpu_device_bdf(handle of, uint64_t *told) { ABOUT(of); *told = (0xc0ull + (unsigned)card_of(of)) << 8; return 0; }

struct asic { char market[256]; uint32_t vendor; char vendor_name[256]; uint32_t subvendor; uint64_t device; uint32_t rev;
              char serial[256]; uint32_t oam, units, padding; uint64_t target; uint32_t subsystem, reserved[21]; } __attribute__((packed));
int amdsmi_get_gpu_asic_info(handle of, struct asic *told)
{
    ABOUT(of);
    memset(told, 0, sizeof *told);
    snprintf(told->market, 256, "%s", now.card[card_of(of)].model);
    told->vendor = 0x1002;
    return 0;
}

struct driver { char version[256], date[256], name[256]; };
int amdsmi_get_gpu_driver_info(handle of, struct driver *told)
{
    ABOUT(of);
    memset(told, 0, sizeof *told);
    snprintf(told->version, 256, "%s", now.driver);
    return 0;
}

struct vram { uint32_t total, used, reserved[2]; };
int amdsmi_get_gpu_vram_usage(handle of, struct vram *told)
{
    ABOUT(of);
    *told = (struct vram){(uint32_t)figure(card_of(of), "total"), (uint32_t)figure(card_of(of), "used"), {0}};
    return 0;
}

struct activity { uint32_t gfx, umc, mm, reserved[13]; };
int amdsmi_get_gpu_activity(handle of, struct activity *told)
{
    ABOUT(of);
    long busy = 0xffff; /* that is how it says "not available" */
    has(card_of(of), "util", &busy);
    *told = (struct activity){.gfx = (uint32_t)busy};
    return 0;
}

int amdsmi_get_temp_metric(handle of, uint32_t sensor, uint32_t metric, int64_t *celsius)
{
    ABOUT(of);
    if (sensor > 1 || metric != 0) return NOT_SUPPORTED;
    if (sensor == 1 && figure(card_of(of), "edge_only")) return NOT_SUPPORTED;
    GIVE(card_of(of), "celsius", *celsius, NOT_SUPPORTED);
    return 0;
}

struct power { uint64_t socket; uint32_t current, average; uint64_t volts[3]; uint32_t limit, padding; uint64_t reserved[18]; };
int amdsmi_get_power_info(handle of, struct power *told)
{
    ABOUT(of);
    *told = (struct power){.current = 0xffff, .average = 0xffff};
    GIVE(card_of(of), "watts", *(figure(card_of(of), "averages") ? &told->average : &told->current), NOT_SUPPORTED);
    return 0;
}

struct clock_info { uint32_t now, min, max; uint8_t locked, sleeping, padding[2]; uint32_t reserved[4]; };
int amdsmi_get_clock_info(handle of, uint32_t kind, struct clock_info *told)
{
    ABOUT(of);
    *told = (struct clock_info){0};
    GIVE(card_of(of), kind == 0 ? "sm" : "mem", told->now, NOT_SUPPORTED);
    return 0;
}

struct errors { uint64_t corrected, uncorrected, deferred, reserved[5]; };
int amdsmi_get_gpu_total_ecc_count(handle of, struct errors *told)
{
    ABOUT(of);
    *told = (struct errors){0};
    GIVE(card_of(of), "ecc_corrected", told->corrected, NOT_SUPPORTED);
    told->uncorrected = (uint64_t)figure(card_of(of), "ecc_uncorrected");
    return 0;
}

struct page { uint64_t address, size; uint32_t status, padding; };
int amdsmi_get_gpu_bad_page_info(handle of, uint32_t *count, struct page *into)
{
    ABOUT(of);
    GIVE(card_of(of), "rows", *count, NOT_SUPPORTED);
    for (uint32_t each = 0; into && each < *count; each++)
        into[each] = (struct page){each, 4096, figure(card_of(of), "row_failure") ? 2 : 0, 0};
    return 0;
}

struct process_info { char name[256]; uint32_t pid, padding; uint64_t bytes; uint64_t engines[2]; uint32_t more_engines[12];
                      uint64_t gtt, cpu, vram; uint32_t more_memory[10]; char container[256]; uint32_t occupancy, reserved[11]; };
int amdsmi_get_gpu_process_list(handle of, uint32_t *count, struct process_info *into)
{
    ABOUT(of);
    uint32_t room = *count;
    *count = 0;
    for (int each = 0; each < now.processes; each++) {
        if (now.process[each].card != card_of(of) || *count >= room) continue;
        struct process_info *told = &into[(*count)++];
        memset(told, 0, sizeof *told);
        told->pid = (uint32_t)now.process[each].pid;
        told->vram = (uint64_t)now.process[each].mib * MIB;
    }
    return 0;
}

int amdsmi_topo_get_link_type(handle one, handle other, uint64_t *hops, uint32_t *type)
{
    ABOUT(one);
    *hops = 1;
    *type = figure(card_of(one), "xgmi") && figure(card_of(other), "xgmi") ? XGMI : 1;
    return 0;
}
