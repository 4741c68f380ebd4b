/* A stand-in for Huawei's libdcmi.so: the calls that the agent makes. Each card has one chip. */
#include "stub.h"

enum { INVALID = -8001, NOT_EXIST = -8008, NOT_SUPPORTED = -8255 };

struct chip_info { char type[32], name[32], version[32]; unsigned cores; };
struct die_id { unsigned part[5]; };
struct pcie_info { unsigned ids[4]; int domain; unsigned bus, device, function; unsigned char reserved[32]; };
struct hbm_info { unsigned long long size; unsigned clock; unsigned long long used; int celsius; unsigned bandwidth; };
struct memory_info { unsigned long long size, available; unsigned clock; unsigned long pages[3]; unsigned busy;
                     unsigned char reserved[60]; };
struct ecc_info { int enabled; unsigned single, twice, total_single, total_double, isolated_single, isolated_double; };
struct process_info { int pid; unsigned long bytes; };

int dcmi_init(void) { load_named("VENDOR_STUB_SCENARIO"); ENTER(-1); return 0; }

int dcmi_get_driver_version(char *text, unsigned length)
{
    ENTER(-1);
    snprintf(text, length, "%s", now.driver);
    return 0;
}

int dcmi_get_card_list(int *count, int *cards, int room)
{
    ENTER(-1);
    for (*count = 0; *count < now.cards && *count < room; ++*count) cards[*count] = *count;
    return 0;
}

int dcmi_get_device_id_in_card(int card, int *chips, int *mcu, int *cpu)
{
    ENTER(card);
    *chips = 1;
    *mcu = 1; /* no chip of ours */
    *cpu = -1;
    return 0;
}

#define ABOUT(card, device) do { if (card < 0 || card >= now.cards || device != 0) return INVALID; ENTER(card); } while (0)

int dcmi_get_device_chip_info(int card, int device, struct chip_info *chip)
{
    ABOUT(card, device);
    memset(chip, 0, sizeof *chip);
    snprintf(chip->type, sizeof chip->type, "Ascend");
    snprintf(chip->name, sizeof chip->name, "%.31s", now.card[card].model);
    return 0;
}

int dcmi_get_device_die_v2(int card, int device, int kind, struct die_id *die)
{
    ABOUT(card, device);
    if (kind != 1) return INVALID;
    *die = (struct die_id){{0x1a2b, 0, 0, 0, (unsigned)card}};
    return 0;
}

int dcmi_get_device_pcie_info_v2(int card, int device, struct pcie_info *pcie)
{
    ABOUT(card, device);
    *pcie = (struct pcie_info){.bus = 0x80u + (unsigned)card};
    return 0;
}

int dcmi_get_device_hbm_info(int card, int device, struct hbm_info *told)
{
    ABOUT(card, device);
    if (figure(card, "ddr")) return NOT_SUPPORTED;
    *told = (struct hbm_info){.size = (unsigned long long)figure(card, "total"), .used = (unsigned long long)figure(card, "used")};
    return 0;
}

int dcmi_get_device_memory_info_v3(int card, int device, struct memory_info *told)
{
    ABOUT(card, device);
    long total = figure(card, "total");
    *told = (struct memory_info){.size = (unsigned long long)total, .available = (unsigned long long)(total - figure(card, "used"))};
    return 0;
}

int dcmi_get_device_utilization_rate(int card, int device, int kind, unsigned *percent)
{
    ABOUT(card, device);
    if (kind != 2) return INVALID;
    GIVE(card, "util", *percent, NOT_SUPPORTED);
    return 0;
}

int dcmi_get_device_temperature(int card, int device, int *celsius)
{
    ABOUT(card, device);
    GIVE(card, "celsius", *celsius, NOT_SUPPORTED);
    return 0;
}

int dcmi_get_device_power_info(int card, int device, int *deciwatts)
{
    ABOUT(card, device);
    GIVE(card, "watts", *deciwatts, NOT_SUPPORTED);
    *deciwatts *= 10;
    return 0;
}

int dcmi_get_device_frequency(int card, int device, int kind, unsigned *mhz)
{
    ABOUT(card, device);
    GIVE(card, kind == 7 ? "sm" : "mem", *mhz, NOT_SUPPORTED);
    return 0;
}

int dcmi_get_device_health(int card, int device, unsigned *health)
{
    ABOUT(card, device);
    *health = (unsigned)figure(card, "health");
    return 0;
}

int dcmi_get_device_ecc_info(int card, int device, int kind, struct ecc_info *ecc)
{
    ABOUT(card, device);
    long corrected;
    if (kind != 2 || !has(card, "ecc_corrected", &corrected)) return NOT_SUPPORTED;
    *ecc = (struct ecc_info){1, 0, 0, (unsigned)corrected, (unsigned)figure(card, "ecc_uncorrected"), (unsigned)figure(card, "rows"), 0};
    return 0;
}

int dcmi_get_device_resource_info(int card, int device, struct process_info *into, int *count)
{
    ABOUT(card, device);
    int room = *count;
    *count = 0;
    for (int each = 0; each < now.processes; each++)
        if (now.process[each].card == card && *count < room)
            into[(*count)++] = (struct process_info){now.process[each].pid, (unsigned long)now.process[each].mib * MIB};
    return 0;
}
