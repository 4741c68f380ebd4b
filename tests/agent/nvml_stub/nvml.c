/* A stand-in for NVIDIA's management library: the calls that the agent makes, answered from a scenario.
 *
 * The scenario is text, one fact a line (tests/agent/nvml_stub/__init__.py writes it), read from the file that
 * NVML_STUB_SCENARIO names when the library is initialised and again after a SIGUSR1, and given by stub_load() at any
 * time.
 *
 *   driver TEXT | cuda NUMBER | cards N
 *   card I KEY NUMBER       a figure of card I, see `keys`; -1 is "not supported". A card that is `stale` is lost until
 *                           the library is initialised anew: it was reset
 *   model I TEXT            the name of card I
 *   slice I P MIB           MIG device number P of card I
 *   instance I P ID START   the same, as an instance of the profile with this id that begins at this memory slice
 *   process I P PID KIND MIB   on card I, on its MIG device P or on -1, the card itself; KIND c, g or m; MIB -1: unknown
 *   busy I PID PERCENT      a sample of a process that computes on card I, again with each look
 *   peer I J                an NVLink from card I to J; J -1: to a switch
 *   answer CALL I CODE [N]  this call about card I (or -1, any) answers with this code, the first N times or always
 *   delay CALL MS           this call takes that long, or until the next scenario
 *   xid I NUMBER            card I tells of this error once
 *
 * Structures and codes are those of the library's public interface.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CARDS 16
#define SLICES 8
#define PROCESSES 128
#define LINKS 18
#define FAULTS 32
#define EVENTS 32
#define MIB (1024ull * 1024ull)

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10, LOST = 15,
       IN_USE = 19, NO_ROOM = 23 };
enum { MEMORY_V2 = 0x02000028 };

/* What a card can be told to be; the order is that of `figure`. */
enum figure { TOTAL, RESERVED, USED, UTIL, CELSIUS, POWER, SM, MEM, THROTTLE, MAJOR, MINOR, ECC_CE, ECC_UE, ROWS, ROW_FAIL,
              MIG, SWITCH, STALE, MODE, FIGURES };
static const char *const keys[FIGURES] = {"total", "reserved", "used", "util", "celsius", "power", "sm", "mem",
    "throttle", "major", "minor", "ecc_corrected", "ecc_uncorrected", "rows", "row_failure", "mig", "switch", "stale",
    "mode"};

struct handle { int card, slice; };
struct process { int card, slice, pid; char kind; long mib; };
struct fault { char call[64]; int card, code, delay_ms, left; };
struct event { int card, xid; };
struct busy { int card, pid, percent; };
struct card {
    char model[96];
    long figure[FIGURES];
    long slice_mib[SLICES];
    struct instance { int profile, start, computes; } instance[SLICES]; /* profile: its place in `profiles` from 1 */
    int peers[LINKS], links;
};

static struct {
    char driver[80];
    int cuda, cards, processes, faults, events, busies;
    struct card card[CARDS];
    struct process process[PROCESSES];
    struct fault fault[FAULTS];
    struct event event[EVENTS];
    struct busy busy[PROCESSES];
} now;
static struct handle handles[CARDS][SLICES + 1]; /* the last one is the card itself */
static int initialised;

/* The instances of an H100 with 80 GB: compute slices, and memory slices from one of the starts. */
static const struct profile { const char *name; unsigned id, compute, size, count; unsigned starts[7]; long mib; } profiles[] = {
    {"1g.10gb", 19, 1, 1, 7, {0, 1, 2, 3, 4, 5, 6}, 9984},
    {"2g.20gb", 14, 2, 2, 3, {0, 2, 4}, 20096},
    {"3g.40gb", 9, 3, 4, 2, {0, 4}, 40448},
    {"4g.40gb", 5, 4, 4, 1, {0}, 40448},
    {"7g.80gb", 0, 7, 8, 1, {0}, 81024},
    {"1g.10gb+me", 20, 1, 1, 1, {0, 1, 2, 3, 4, 5, 6}, 9984},
    {"1g.20gb", 15, 1, 2, 4, {0, 2, 4, 6}, 20096},
};
#define PROFILES (sizeof profiles / sizeof *profiles)

static int profile_with(unsigned id)
{
    for (unsigned each = 0; each < PROFILES; each++) if (profiles[each].id == id) return (int)each;
    return -1;
}

static void occupy(int card, int place, unsigned profile, unsigned start, int computes)
{
    now.card[card].instance[place] = (struct instance){(int)profile + 1, (int)start, computes};
    now.card[card].slice_mib[place] = computes ? profiles[profile].mib : 0;
}

static void take_figure(int card, const char *key, long value)
{
    for (int each = 0; each < FIGURES; each++)
        if (strcmp(keys[each], key) == 0) now.card[card].figure[each] = value;
}

static void take(const char *line)
{
    char text[96], kind;
    int a, b, c;
    long value;
    if (sscanf(line, "driver %79[^\n]", now.driver) == 1) return;
    if (sscanf(line, "cuda %d", &now.cuda) == 1) return;
    if (sscanf(line, "cards %d", &now.cards) == 1) return;
    if (sscanf(line, "card %d %63s %ld", &a, text, &value) == 3) { take_figure(a, text, value); return; }
    if (sscanf(line, "model %d %95[^\n]", &a, text) == 2) { strcpy(now.card[a].model, text); return; }
    if (sscanf(line, "slice %d %d %ld", &a, &b, &value) == 3) { now.card[a].slice_mib[b] = value; return; }
    if (sscanf(line, "instance %d %d %d %ld", &a, &b, &c, &value) == 4) {
        occupy(a, b, (unsigned)profile_with((unsigned)c), (unsigned)value, 1);
        return;
    }
    if (sscanf(line, "process %d %d %d %c %ld", &a, &b, &c, &kind, &value) == 5)
        now.process[now.processes++] = (struct process){a, b, c, kind, value};
    if (sscanf(line, "busy %d %d %d", &a, &b, &c) == 3) now.busy[now.busies++] = (struct busy){a, b, c};
    if (sscanf(line, "peer %d %d", &a, &b) == 2) now.card[a].peers[now.card[a].links++] = b;
    if (sscanf(line, "xid %d %d", &a, &b) == 2) now.event[now.events++] = (struct event){a, b};
    struct fault *fault = &now.fault[now.faults];
    fault->left = -1;
    if (sscanf(line, "answer %63s %d %d %d", fault->call, &fault->card, &fault->code, &fault->left) >= 3) now.faults++;
    else if (sscanf(line, "delay %63s %d", fault->call, &fault->delay_ms) == 2) { fault->card = -1; now.faults++; }
}

#include "../stub_lines.h"

static volatile sig_atomic_t anew;
static void ask_anew(int signal) { (void)signal; anew = 1; }

/* Every call begins here: waits as long as the scenario says, and gives the code that it must answer with. */
static int enter(const char *call, const struct handle *about)
{
    int code = initialised ? OK : UNINITIALIZED, delay_ms = 0;
    if (anew) { anew = 0; load_named("NVML_STUB_SCENARIO"); }
    pthread_mutex_lock(&lock);
    for (int each = 0; each < now.faults; each++) {
        struct fault *fault = &now.fault[each];
        if (strcmp(fault->call, call) != 0 && strcmp(fault->call, "*") != 0) continue;
        if (fault->card >= 0 && (!about || about->card != fault->card)) continue;
        if (fault->left == 0) continue;
        if (fault->left > 0) fault->left--;
        if (fault->delay_ms) delay_ms = fault->delay_ms;
        else code = fault->code;
    }
    if (about && now.card[about->card].figure[STALE] > 0) code = LOST;
    unsigned playing = played;
    pthread_mutex_unlock(&lock);
    for (; delay_ms > 0 && playing == played; delay_ms -= 5) usleep(5000);
    return code;
}
#define ENTER(about) do { int code = enter(__func__, about); if (code != OK) return code; } while (0)

static int given(const struct handle *device, enum figure figure, long *value)
{
    *value = now.card[device->card].figure[figure];
    return *value < 0 ? NOT_SUPPORTED : OK;
}

static int tell(const struct handle *device, enum figure figure, unsigned *value)
{
    long found;
    int code = given(device, figure, &found);
    if (code == OK) *value = (unsigned)found;
    return code;
}

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    if (getenv("NVML_STUB_SCENARIO")) {
        load_named("NVML_STUB_SCENARIO");
        signal(SIGUSR1, ask_anew);
    }
    initialised = 1;
    for (int card = 0; card < CARDS; card++) now.card[card].figure[STALE] = 0;
    int code = enter(__func__, NULL);
    if (code != OK) initialised = 0;
    return code;
}

int nvmlShutdown(void) { ENTER(NULL); initialised = 0; return OK; }

const char *nvmlErrorString(int code)
{
    switch (code) {
    case UNINITIALIZED: return "Uninitialized";
    case NOT_SUPPORTED: return "Not Supported";
    case 9: return "Driver Not Loaded";
    case LOST: return "GPU is lost";
    case IN_USE: return "In use by another client";
    case NO_ROOM: return "Insufficient Resources";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *text, unsigned length)
{
    ENTER(NULL);
    snprintf(text, length, "%s", now.driver);
    return OK;
}

int nvmlSystemGetCudaDriverVersion(int *version) { ENTER(NULL); *version = now.cuda; return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { ENTER(NULL); *count = (unsigned)now.cards; return OK; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct handle **device)
{
    if (index >= (unsigned)now.cards) return INVALID;
    struct handle *found = &handles[index][SLICES];
    *found = (struct handle){(int)index, -1};
    ENTER(found);
    *device = found;
    return OK;
}

int nvmlDeviceGetName(struct handle *device, char *text, unsigned length)
{
    ENTER(device);
    const struct card *card = &now.card[device->card];
    int profile = device->slice < 0 ? 0 : card->instance[device->slice].profile;
    if (device->slice < 0) snprintf(text, length, "%s", card->model);
    else if (profile) snprintf(text, length, "%s MIG %s", card->model, profiles[profile - 1].name);
    else snprintf(text, length, "%s MIG 1g.%ldgb", card->model, (card->slice_mib[device->slice] + 512) / 1024);
    return OK;
}

int nvmlDeviceGetUUID(struct handle *device, char *text, unsigned length)
{
    ENTER(device);
    if (device->slice < 0) snprintf(text, length, "GPU-00000000-0000-4000-8000-%012d", device->card);
    else snprintf(text, length, "MIG-00000000-0000-4000-8%03d-%012d", device->slice, device->card);
    return OK;
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

static void place(int card, struct pci *pci)
{
    memset(pci, 0, sizeof *pci);
    pci->bus = 0x10u + (unsigned)card;
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus);
}

int nvmlDeviceGetPciInfo_v3(struct handle *device, struct pci *pci) { ENTER(device); place(device->card, pci); return OK; }

int nvmlDeviceGetCudaComputeCapability(struct handle *device, int *major, int *minor)
{
    ENTER(device);
    *major = (int)now.card[device->card].figure[MAJOR];
    *minor = (int)now.card[device->card].figure[MINOR];
    return OK;
}

static long used_of(const struct handle *device)
{
    if (device->slice < 0) return now.card[device->card].figure[USED];
    long sum = 0;
    for (int each = 0; each < now.processes; each++)
        if (now.process[each].card == device->card && now.process[each].slice == device->slice)
            sum += now.process[each].mib;
    return sum;
}

static long total_of(const struct handle *device)
{
    const struct card *card = &now.card[device->card];
    return device->slice < 0 ? card->figure[TOTAL] : card->slice_mib[device->slice];
}

/* The first version counts what the driver keeps for itself as used. */
int nvmlDeviceGetMemoryInfo(struct handle *device, unsigned long long *total_free_used)
{
    ENTER(device);
    long total = total_of(device), used = used_of(device) + now.card[device->card].figure[RESERVED];
    total_free_used[0] = (unsigned long long)total * MIB;
    total_free_used[1] = (unsigned long long)(total - used) * MIB;
    total_free_used[2] = (unsigned long long)used * MIB;
    return OK;
}

#ifndef OLD_DRIVER
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

int nvmlDeviceGetMemoryInfo_v2(struct handle *device, struct memory_v2 *memory)
{
    ENTER(device);
    if (memory->version != MEMORY_V2) return 25;
    long total = total_of(device), used = used_of(device), reserved = now.card[device->card].figure[RESERVED];
    memory->total = (unsigned long long)total * MIB;
    memory->reserved = (unsigned long long)reserved * MIB;
    memory->free = (unsigned long long)(total - used - reserved) * MIB;
    memory->used = (unsigned long long)used * MIB;
    return OK;
}
#endif

int nvmlDeviceGetUtilizationRates(struct handle *device, unsigned *gpu_memory)
{
    ENTER(device);
    if (now.card[device->card].figure[MIG] > 0) return NOT_SUPPORTED;
    gpu_memory[1] = 0;
    return tell(device, UTIL, &gpu_memory[0]);
}

int nvmlDeviceGetTemperature(struct handle *device, int sensor, unsigned *celsius)
{
    (void)sensor;
    ENTER(device);
    return tell(device, CELSIUS, celsius);
}

#ifndef OLD_DRIVER
struct temperature { unsigned version; int sensor, celsius; };

int nvmlDeviceGetTemperatureV(struct handle *device, struct temperature *told)
{
    ENTER(device);
    return tell(device, CELSIUS, (unsigned *)&told->celsius);
}
#endif

int nvmlDeviceGetPowerUsage(struct handle *device, unsigned *milliwatts)
{
    ENTER(device);
    return tell(device, POWER, milliwatts);
}

int nvmlDeviceGetClockInfo(struct handle *device, int clock, unsigned *mhz)
{
    ENTER(device);
    return tell(device, clock == 2 ? MEM : SM, mhz);
}

static int throttle(struct handle *device, unsigned long long *reasons)
{
    long bits;
    int code = given(device, THROTTLE, &bits);
    *reasons = (unsigned long long)bits;
    return code;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(struct handle *device, unsigned long long *reasons)
{
    ENTER(device);
    return throttle(device, reasons);
}

#ifndef OLD_DRIVER
int nvmlDeviceGetCurrentClocksEventReasons(struct handle *device, unsigned long long *reasons)
{
    ENTER(device);
    return throttle(device, reasons);
}
#endif

int nvmlDeviceGetTotalEccErrors(struct handle *device, int type, int counter, unsigned long long *count)
{
    (void)counter;
    ENTER(device);
    long value;
    int code = given(device, type == 1 ? ECC_UE : ECC_CE, &value);
    *count = (unsigned long long)value;
    return code;
}

struct field { uint32_t id, scope; int64_t at, took; uint32_t type; int code; union { uint64_t number; } value; };

/* Each field has a code of its own; an old driver knows no fields. */
#ifndef OLD_DRIVER
int nvmlDeviceGetFieldValues(struct handle *device, int count, struct field *fields)
{
    ENTER(device);
    for (int each = 0; each < count; each++) {
        struct field *field = &fields[each];
        long value = 0;
        switch (field->id) {
        case 3: field->code = given(device, ECC_CE, &value); break;
        case 4: field->code = given(device, ECC_UE, &value); break;
        case 142: field->code = given(device, ROWS, &value); value = 0; break;
        case 143: field->code = given(device, ROWS, &value); break;
        case 145: field->code = given(device, ROWS, &value); value = now.card[device->card].figure[ROW_FAIL] > 0; break;
        default: field->code = INVALID;
        }
        field->type = field->id > 100 ? 1 : 3;
        field->value.number = (uint64_t)value;
        int faulty = enter("field", device);
        if (faulty != OK) field->code = faulty;
    }
    return OK;
}
#endif

int nvmlDeviceGetRemappedRows(struct handle *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failure)
{
    ENTER(device);
    *corrected = *pending = 0;
    *failure = now.card[device->card].figure[ROW_FAIL] > 0;
    return tell(device, ROWS, uncorrected);
}

int nvmlDeviceGetMigMode(struct handle *device, unsigned *current, unsigned *pending)
{
    ENTER(device);
    int code = tell(device, MIG, current);
    *pending = *current;
    return code;
}

int nvmlDeviceGetComputeMode(struct handle *device, unsigned *mode)
{
    ENTER(device);
    return tell(device, MODE, mode);
}

int nvmlDeviceSetComputeMode(struct handle *device, unsigned mode)
{
    ENTER(device);
    now.card[device->card].figure[MODE] = mode;
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(struct handle *device, unsigned *count) { ENTER(device); *count = SLICES; return OK; }

int nvmlDeviceGetMigDeviceHandleByIndex(struct handle *device, unsigned index, struct handle **slice)
{
    ENTER(device);
    if (index >= SLICES || now.card[device->card].slice_mib[index] == 0) return NOT_FOUND;
    *slice = &handles[device->card][index];
    **slice = (struct handle){device->card, (int)index};
    return OK;
}

struct profile_info { unsigned version, id, p2p, compute, count, engines[6]; unsigned long long mib; char name[96]; };

/* The numbers of the public interface: 1, 2, 3, 4, 7 slices, two that no card has, and revision 1 and 2 of one slice. */
int nvmlDeviceGetGpuInstanceProfileInfoV(struct handle *device, unsigned number, struct profile_info *info)
{
    static const int order[] = {0, 1, 2, 3, 4, -1, -1, 5, -1, 6};
    ENTER(device);
    if (number >= sizeof order / sizeof *order || order[number] < 0) return NOT_SUPPORTED;
    const struct profile *profile = &profiles[order[number]];
    info->id = profile->id;
    info->compute = profile->compute;
    info->count = profile->count;
    info->mib = (unsigned long long)profile->mib;
    snprintf(info->name, sizeof info->name, "MIG %s", profile->name);
    return OK;
}

struct placement { unsigned start, size; };

int nvmlDeviceGetGpuInstancePossiblePlacements_v2(struct handle *device, unsigned id, struct placement *into, unsigned *count)
{
    ENTER(device);
    int found = profile_with(id);
    if (found < 0) return INVALID;
    const struct profile *profile = &profiles[found];
    unsigned starts = strchr(profile->name, '+') ? 7 : profile->count;
    for (unsigned each = 0; each < starts; each++) into[each] = (struct placement){profile->starts[each], profile->size};
    *count = starts;
    return OK;
}

static struct handle gpu_instances[CARDS][SLICES];

static struct instance *instance_of(const struct handle *about) { return &now.card[about->card].instance[about->slice]; }

static int is_free(int card, unsigned start, unsigned size)
{
    for (int each = 0; each < SLICES; each++) {
        const struct instance *other = &now.card[card].instance[each];
        if (!other->profile) continue;
        unsigned from = (unsigned)other->start, to = from + profiles[other->profile - 1].size;
        if (start < to && from < start + size) return 0;
    }
    return 1;
}

int nvmlDeviceCreateGpuInstanceWithPlacement(struct handle *device, unsigned id, const struct placement *at, struct handle **made)
{
    ENTER(device);
    int profile = profile_with(id), place = 0, offered = 0;
    if (profile < 0 || now.card[device->card].figure[MIG] < 1) return INVALID;
    for (unsigned each = 0; each < 7; each++)
        offered |= profiles[profile].starts[each] == at->start && (each == 0 || profiles[profile].starts[each] > 0);
    if (!offered || at->size != profiles[profile].size) return INVALID;
    if (!is_free(device->card, at->start, at->size)) return NO_ROOM;
    while (now.card[device->card].instance[place].profile) place++;
    occupy(device->card, place, (unsigned)profile, at->start, 0);
    *made = &gpu_instances[device->card][place];
    **made = (struct handle){device->card, place};
    return OK;
}

int nvmlDeviceGetGpuInstances(struct handle *device, unsigned id, struct handle **into, unsigned *count)
{
    ENTER(device);
    *count = 0;
    for (int each = 0; each < SLICES; each++) {
        int profile = now.card[device->card].instance[each].profile;
        if (!profile || profiles[profile - 1].id != id) continue;
        gpu_instances[device->card][each] = (struct handle){device->card, each};
        into[(*count)++] = &gpu_instances[device->card][each];
    }
    return OK;
}

struct instance_info { struct handle *device; unsigned id, profile; struct placement placement; };

int nvmlGpuInstanceGetInfo(struct handle *about, struct instance_info *info)
{
    ENTER(about);
    const struct profile *profile = &profiles[instance_of(about)->profile - 1];
    *info = (struct instance_info){&handles[about->card][SLICES], (unsigned)about->slice, profile->id,
                                   {(unsigned)instance_of(about)->start, profile->size}};
    return OK;
}

int nvmlGpuInstanceDestroy(struct handle *about)
{
    ENTER(about);
    if (instance_of(about)->computes) return IN_USE;
    *instance_of(about) = (struct instance){0, 0, 0};
    return OK;
}

struct compute_info { unsigned version, id, compute, count, engines[6]; char name[96]; };

int nvmlGpuInstanceGetComputeInstanceProfileInfoV(struct handle *about, unsigned number, unsigned engine, struct compute_info *info)
{
    static const unsigned slices[] = {1, 2, 3, 4, 7};
    (void)engine;
    ENTER(about);
    if (number >= 5 || slices[number] > profiles[instance_of(about)->profile - 1].compute) return NOT_SUPPORTED;
    info->id = number;
    info->compute = slices[number];
    info->count = profiles[instance_of(about)->profile - 1].compute / slices[number];
    return OK;
}

static int is_whole(const struct handle *about, unsigned id)
{
    static const unsigned slices[] = {1, 2, 3, 4, 7};
    return slices[id] == profiles[instance_of(about)->profile - 1].compute;
}

int nvmlGpuInstanceCreateComputeInstance(struct handle *about, unsigned id, struct handle **made)
{
    ENTER(about);
    if (instance_of(about)->computes || !is_whole(about, id)) return NO_ROOM;
    occupy(about->card, about->slice, (unsigned)instance_of(about)->profile - 1, (unsigned)instance_of(about)->start, 1);
    *made = about;
    return OK;
}

int nvmlGpuInstanceGetComputeInstances(struct handle *about, unsigned id, struct handle **into, unsigned *count)
{
    ENTER(about);
    *count = is_whole(about, id) ? (unsigned)instance_of(about)->computes : 0;
    if (*count) into[0] = about;
    return OK;
}

int nvmlComputeInstanceDestroy(struct handle *about)
{
    ENTER(about);
    for (int each = 0; each < now.processes; each++)
        if (now.process[each].card == about->card && now.process[each].slice == about->slice) return IN_USE;
    instance_of(about)->computes = 0;
    now.card[about->card].slice_mib[about->slice] = 0;
    return OK;
}

int nvmlDeviceGetNvLinkState(struct handle *device, unsigned link, unsigned *active)
{
    ENTER(device);
    const struct card *card = &now.card[device->card];
    if (card->links == 0) return NOT_SUPPORTED;
    *active = (int)link < card->links;
    return link < LINKS ? OK : INVALID;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(struct handle *device, unsigned link, int *type)
{
    ENTER(device);
    *type = now.card[device->card].peers[link] < 0 ? 2 : 0;
    return OK;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct handle *device, unsigned link, struct pci *pci)
{
    ENTER(device);
    place(now.card[device->card].peers[link], pci);
    return OK;
}

/* Cards with the same number of a PCIe switch hang on it together; the others meet at the host bridge. */
int nvmlDeviceGetTopologyCommonAncestor(struct handle *one, struct handle *other, int *level)
{
    ENTER(one);
    long a = now.card[one->card].figure[SWITCH], b = now.card[other->card].figure[SWITCH];
    *level = a > 0 && a == b ? 10 : 30;
    return OK;
}

struct process_info { unsigned pid; unsigned long long used; unsigned instance, compute_instance; };

static int list(const struct handle *device, char kind, unsigned *count, struct process_info *into)
{
    unsigned found = 0;
    for (int each = 0; each < now.processes; each++) {
        const struct process *process = &now.process[each];
        if (process->card != device->card || process->slice != device->slice || process->kind != kind) continue;
        if (into && found < *count) {
            unsigned long long used = process->mib < 0 ? ~0ull : (unsigned long long)process->mib * MIB;
            into[found] = (struct process_info){(unsigned)process->pid, used, ~0u, ~0u};
        }
        found++;
    }
    int fits = found == 0 || (into && found <= *count);
    *count = found;
    return fits ? OK : TOO_SMALL;
}

#define LIST(name, kind) \
    int name(struct handle *device, unsigned *count, struct process_info *into) \
    { ENTER(device); return list(device, kind, count, into); }
LIST(nvmlDeviceGetComputeRunningProcesses_v2, 'c')
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, 'g')
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, 'm')
#ifndef OLD_DRIVER
LIST(nvmlDeviceGetComputeRunningProcesses_v3, 'c')
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, 'g')
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, 'm')
#endif

struct busy_sample { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; };

int nvmlDeviceGetProcessUtilization(struct handle *device, struct busy_sample *into, unsigned *count, unsigned long long since)
{
    ENTER(device);
    unsigned room = into ? *count : 0, found = 0;
    for (int each = 0; each < now.busies; each++) {
        const struct busy *busy = &now.busy[each];
        if (busy->card != device->card) continue;
        if (into && found < room) into[found] = (struct busy_sample){(unsigned)busy->pid, since + 1, (unsigned)busy->percent, 0, 0, 0};
        found++;
    }
    *count = found;
    return found == 0 ? NOT_FOUND : into ? OK : TOO_SMALL;
}

int nvmlEventSetCreate(void **set) { ENTER(NULL); *set = &now; return OK; }
int nvmlEventSetFree(void *set) { (void)set; ENTER(NULL); return OK; }
int nvmlDeviceGetSupportedEventTypes(struct handle *device, unsigned long long *types) { ENTER(device); *types = 0x1f; return OK; }

int nvmlDeviceRegisterEvents(struct handle *device, unsigned long long types, void *set)
{
    (void)set;
    ENTER(device);
    return types & ~0x1full ? NOT_SUPPORTED : OK;
}

struct told { struct handle *device; unsigned long long type, data; unsigned instance, compute_instance; };

static int next(struct told *told)
{
    int found = 0;
    pthread_mutex_lock(&lock);
    if (now.events > 0) {
        struct event event = now.event[--now.events];
        *told = (struct told){&handles[event.card][SLICES], event.xid ? 8 : 2, (unsigned long long)event.xid, ~0u, ~0u};
        found = 1;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

int nvmlEventSetWait_v2(void *set, struct told *told, unsigned timeout_ms)
{
    (void)set;
    ENTER(NULL);
    for (unsigned waited = 0; ; waited += 5) {
        if (next(told)) return OK;
        if (waited >= timeout_ms) return TIMEOUT;
        usleep(5000);
    }
}
