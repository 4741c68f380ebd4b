/* What the stand-ins for the vendors' libraries share: a scenario of cards and figures, and faults at will.
 *
 * The scenario is text, one fact a line (tests/agent/vendor_stub/__init__.py writes it), given by stub_load() at any time,
 * and read from the file that VENDOR_STUB_SCENARIO names when a library is initialised.
 *
 *   cards N | driver TEXT | model I TEXT
 *   card I KEY NUMBER          a figure of card I; one that is not said is not supported
 *   process I PID MIB          on card I
 *   answer CALL I CODE         this call about card I (or -1, any) answers with this code
 *   delay CALL MS              this call takes that long, or until the next scenario
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CARDS 16
#define FIGURES 32
#define PROCESSES 64
#define FAULTS 16
#define MIB (1024ull * 1024ull)

struct figure { char key[24]; long value; };
struct card { char model[96]; struct figure figure[FIGURES]; int figures; };
struct process { int card, pid; long mib; };
struct fault { char call[64]; int card, code, delay_ms; };

static struct {
    char driver[96];
    int cards, processes, faults;
    struct card card[CARDS];
    struct process process[PROCESSES];
    struct fault fault[FAULTS];
} now;

static void take(const char *line)
{
    char text[96];
    int a, b;
    long value;
    if (sscanf(line, "driver %95[^\n]", now.driver) == 1) return;
    if (sscanf(line, "cards %d", &now.cards) == 1) return;
    if (sscanf(line, "model %d %95[^\n]", &a, text) == 2) { strcpy(now.card[a].model, text); return; }
    if (sscanf(line, "card %d %23s %ld", &a, text, &value) == 3) {
        struct figure *figure = &now.card[a].figure[now.card[a].figures++];
        snprintf(figure->key, sizeof figure->key, "%.23s", text);
        figure->value = value;
        return;
    }
    if (sscanf(line, "process %d %d %ld", &a, &b, &value) == 3)
        now.process[now.processes++] = (struct process){a, b, value};
    struct fault *fault = &now.fault[now.faults];
    if (sscanf(line, "answer %63s %d %d", fault->call, &fault->card, &fault->code) == 3) now.faults++;
    else if (sscanf(line, "delay %63s %d", fault->call, &fault->delay_ms) == 2) { fault->card = -1; now.faults++; }
}

#include "../stub_lines.h"

/* Every call begins here: waits as long as the scenario says, and gives the code that it must answer with. */
static int enter(const char *call, int card)
{
    int code = 0, delay_ms = 0;
    pthread_mutex_lock(&lock);
    for (int each = 0; each < now.faults; each++) {
        const struct fault *fault = &now.fault[each];
        if (strcmp(fault->call, call) != 0 && strcmp(fault->call, "*") != 0) continue;
        if (fault->card >= 0 && card != fault->card) continue;
        if (fault->delay_ms) delay_ms = fault->delay_ms;
        else code = fault->code;
    }
    unsigned playing = played;
    pthread_mutex_unlock(&lock);
    for (; delay_ms > 0 && playing == played; delay_ms -= 5) usleep(5000);
    return code;
}
#define ENTER(card) do { int code = enter(__func__, card); if (code != 0) return code; } while (0)

/* Whether a card has that figure, and which. */
static inline int has(int card, const char *key, long *value)
{
    for (int each = 0; each < now.card[card].figures; each++)
        if (strcmp(now.card[card].figure[each].key, key) == 0) {
            *value = now.card[card].figure[each].value;
            return 1;
        }
    return 0;
}

static inline long figure(int card, const char *key)
{
    long value = 0;
    has(card, key, &value);
    return value;
}
/* For calls that answer with one figure: it goes there, or the call is not supported. */
#define GIVE(card, key, into, absent) do { long given_; if (!has(card, key, &given_)) return absent; (into) = given_; } while (0)
