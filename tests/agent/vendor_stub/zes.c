/* A stand-in for Level Zero's loader, Sysman's part of it: the calls that the agent makes. Handles are a card's number and
 * what of it. A card's counters of energy and activity move by one second with each look. */
#include "stub.h"

enum { LOST = 0x70000001, INVALID = 0x78000004, UNSUPPORTED = 0x78000003 };
enum { DRIVER = 1, DEVICE, HOST_MEMORY, CARD_MEMORY, ENGINE, SENSOR, POWER, GPU_CLOCK, MEMORY_CLOCK, RAS_CE, RAS_UE };

typedef void *handle;
static handle handle_of(int what, int card) { return (handle)(uintptr_t)(what * 256 + card + 1); }
static int card_of(handle of) { return (int)((uintptr_t)of % 256) - 1; }
static int what_of(handle of) { return (int)((uintptr_t)of / 256); }

struct base { uint32_t stype; void *next; };
struct core { uint32_t stype; void *next; uint32_t type, vendor, device, flags, subdevice, clock; uint64_t max_alloc;
              uint32_t limits[7]; uint64_t timer; uint32_t bits[2]; uint8_t uuid[16]; char name[256]; };
struct device { uint32_t stype; void *next; struct core core; uint32_t subdevices;
                char serial[64], board[64], brand[64], model[64], vendor[64], driver[64]; };
struct pci { uint32_t stype; void *next; uint32_t domain, bus, device, function; int32_t gen, width; int64_t bandwidth;
             uint8_t counters[3]; };
struct part { uint32_t stype; void *next; uint32_t type; uint8_t on_subdevice; uint32_t subdevice; };
struct memory { uint32_t stype; void *next; uint32_t type; uint8_t on_subdevice; uint32_t subdevice, location; uint64_t size;
                int32_t width, channels; };
struct memory_state { uint32_t stype; const void *next; uint32_t health; uint64_t free, size; };
struct counter { uint64_t amount, at; };
struct process_state { uint32_t stype; const void *next; uint32_t pid; uint64_t bytes, shared; uint32_t engines; };
struct clock_state { uint32_t stype; const void *next; double voltage, request, tdp, efficient, actual; uint32_t throttled; };
struct ras_state { uint32_t stype; const void *next; uint64_t category[7]; };
struct device_state { uint32_t stype; const void *next; uint32_t reset, repaired; };

/* The type that a structure must say, or the call is refused: so a layout or a type that we got wrong shows. */
#define OF_TYPE(told, number) do { if ((told)->stype != (number)) return INVALID; } while (0)

int zesInit(uint32_t flags) { (void)flags; load_named("VENDOR_STUB_SCENARIO"); ENTER(-1); return 0; }

static int list(uint32_t *count, handle *into, int many, const handle *found)
{
    if (into) memcpy(into, found, sizeof *found * (size_t)(*count < (uint32_t)many ? *count : (uint32_t)many));
    *count = (uint32_t)many;
    return 0;
}

int zesDriverGet(uint32_t *count, handle *into)
{
    ENTER(-1);
    handle found = handle_of(DRIVER, 0);
    return list(count, into, 1, &found);
}

int zesDeviceGet(handle driver, uint32_t *count, handle *into)
{
    ENTER(-1);
    handle found[CARDS];
    if (what_of(driver) != DRIVER) return INVALID;
    for (int card = 0; card < now.cards; card++) found[card] = handle_of(DEVICE, card);
    return list(count, into, now.cards, found);
}

int zesDeviceGetProperties(handle of, struct device *told)
{
    int card = card_of(of);
    ENTER(card);
    OF_TYPE(told, 0x1);
    long type = 1;
    has(card, "type", &type);
    told->core.type = (uint32_t)type;
    memset(told->core.uuid, 0, 16);
    told->core.uuid[0] = 0x86;
    told->core.uuid[15] = (uint8_t)card;
    snprintf(told->core.name, 256, "%s", now.card[card].model);
    snprintf(told->driver, 64, "%.63s", now.driver);
    return 0;
}

int zesDeviceGetState(handle of, struct device_state *told)
{
    ENTER(card_of(of));
    OF_TYPE(told, 0x15);
    told->reset = (uint32_t)figure(card_of(of), "wedged");
    return 0;
}

int zesDevicePciGetProperties(handle of, struct pci *told)
{
    ENTER(card_of(of));
    OF_TYPE(told, 0x2);
    told->bus = 0x40u + (uint32_t)card_of(of);
    return 0;
}

#define LIST(name, ...) \
    int name(handle of, uint32_t *count, handle *into) \
    { \
        int card = card_of(of); \
        const int parts[] = {__VA_ARGS__}; \
        handle found[4]; \
        ENTER(card); \
        for (size_t each = 0; each < sizeof parts / sizeof *parts; each++) found[each] = handle_of(parts[each], card); \
        return list(count, into, (int)(sizeof parts / sizeof *parts), found); \
    }
LIST(zesDeviceEnumMemoryModules, HOST_MEMORY, CARD_MEMORY)
LIST(zesDeviceEnumEngineGroups, ENGINE)
LIST(zesDeviceEnumTemperatureSensors, SENSOR)
LIST(zesDeviceEnumPowerDomains, POWER)
LIST(zesDeviceEnumFrequencyDomains, GPU_CLOCK, MEMORY_CLOCK)
LIST(zesDeviceEnumRasErrorSets, RAS_CE, RAS_UE)

int zesMemoryGetProperties(handle of, struct memory *told)
{
    ENTER(card_of(of));
    OF_TYPE(told, 0xb);
    told->location = what_of(of) == CARD_MEMORY;
    return 0;
}

int zesMemoryGetState(handle of, struct memory_state *told)
{
    int card = card_of(of);
    ENTER(card);
    OF_TYPE(told, 0x1e);
    long total = figure(card, "total"), health = 1;
    has(card, "memory_health", &health);
    told->health = (uint32_t)health;
    told->size = (uint64_t)total * MIB;
    told->free = (uint64_t)(total - figure(card, "used")) * MIB;
    return 0;
}

/* The number of the type that each part says it is of. */
#define PART(name, kind, number) \
    int name(handle of, struct part *told) { ENTER(card_of(of)); OF_TYPE(told, kind); told->type = (number); return 0; }
PART(zesEngineGetProperties, 0x5, 0)
PART(zesFrequencyGetProperties, 0x9, what_of(of) == MEMORY_CLOCK)
PART(zesRasGetProperties, 0xf, what_of(of) == RAS_UE)
PART(zesTemperatureGetProperties, 0x14, 1)

static int moved(handle of, const char *key, long scale, struct counter *told)
{
    static struct counter counters[CARDS][2];
    struct counter *counter = &counters[card_of(of)][what_of(of) == POWER];
    long value;
    if (!has(card_of(of), key, &value)) return UNSUPPORTED;
    counter->at += 1000000;
    counter->amount += (uint64_t)(value * scale);
    *told = *counter;
    return 0;
}

int zesEngineGetActivity(handle of, struct counter *told) { ENTER(card_of(of)); return moved(of, "util", 10000, told); }
int zesPowerGetEnergyCounter(handle of, struct counter *told) { ENTER(card_of(of)); return moved(of, "watts", 1000000, told); }

int zesTemperatureGetState(handle of, double *celsius)
{
    ENTER(card_of(of));
    GIVE(card_of(of), "celsius", *celsius, UNSUPPORTED);
    return 0;
}

int zesFrequencyGetState(handle of, struct clock_state *told)
{
    int card = card_of(of);
    ENTER(card);
    OF_TYPE(told, 0x1b);
    GIVE(card, what_of(of) == GPU_CLOCK ? "sm" : "mem", told->actual, UNSUPPORTED);
    told->throttled = (uint32_t)figure(card, "throttle");
    return 0;
}

int zesRasGetState(handle of, uint8_t clear, struct ras_state *told)
{
    int card = card_of(of);
    ENTER(card);
    OF_TYPE(told, 0x22);
    if (clear) return INVALID;
    memset(told->category, 0, sizeof told->category);
    told->category[1] = 99; /* programs' own errors: no sign of a bad card */
    GIVE(card, what_of(of) == RAS_UE ? "ecc_uncorrected" : "ecc_corrected", told->category[5], UNSUPPORTED);
    return 0;
}

int zesDeviceProcessesGetState(handle of, uint32_t *count, struct process_state *into)
{
    int card = card_of(of);
    uint32_t found = 0;
    ENTER(card);
    for (int each = 0; each < now.processes; each++) {
        if (now.process[each].card != card) continue;
        if (into && found < *count) {
            OF_TYPE(&into[found], 0x16);
            into[found].pid = (uint32_t)now.process[each].pid;
            into[found].bytes = (uint64_t)now.process[each].mib * MIB;
        }
        found++;
    }
    *count = found;
    return 0;
}
