/* A stand-in for NVIDIA's libcuda.so.1: memory on one card, and checkpoints of processes that exist only here.
 *
 * What it plays is text, one fact a line, from the file that CUDA_STUB_SCENARIO names when the library is initialised,
 * or given by stub_load() at any time:
 *   card MIB                          memory of the card (81559)
 *   enforce 0|1                       whether CUDA_MPS_PINNED_DEVICE_MEM_LIMIT binds a client of MPS (1)
 *   context MIB                       memory that a context takes of a client's limit (64)
 *   answer CALL CODE [TIMES]          what a call answers in place of doing its work; TIMES: only so often
 *   after CALL CODE                   the same, and then the process is FAILED: it broke half way
 *   delay CALL MILLISECONDS           how long a call takes
 *   process PID MIB                   a process with memory on the card, for the checkpoint calls
 * With CUDA_STUB_STATE, a folder, processes that take memory are known to each other, and their states are kept there.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST 64
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, ILLEGAL_STATE = 401, NOT_READY = 600 };
enum { RUNNING, LOCKED, CHECKPOINTED, FAILED };

struct answer { char call[48]; int code, times, breaks; };
struct delay { char call[48]; int milliseconds; };
struct process { int pid, mib, state; };

static struct {
    int card, enforce, context, initialised, taken, answers, delays, processes;
    struct answer answer[MOST];
    struct delay delay[MOST];
    struct process process[MOST];
} play = {.card = 81559, .enforce = 1, .context = 64};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void learn(const char *line)
{
    char call[48];
    int a = 0, b = 0, found;
    if (sscanf(line, "card %d", &a) == 1) play.card = a;
    else if (sscanf(line, "enforce %d", &a) == 1) play.enforce = a;
    else if (sscanf(line, "context %d", &a) == 1) play.context = a;
    else if ((found = sscanf(line, "answer %47s %d %d", call, &a, &b)) >= 2 && play.answers < MOST) {
        struct answer *new = &play.answer[play.answers++];
        *new = (struct answer){.code = a, .times = found == 3 ? b : -1};
        strcpy(new->call, call);
    } else if (sscanf(line, "after %47s %d", call, &a) == 2 && play.answers < MOST) {
        struct answer *new = &play.answer[play.answers++];
        *new = (struct answer){.code = a, .times = 1, .breaks = 1};
        strcpy(new->call, call);
    } else if (sscanf(line, "delay %47s %d", call, &a) == 2 && play.delays < MOST) {
        struct delay *new = &play.delay[play.delays++];
        new->milliseconds = a;
        strcpy(new->call, call);
    } else if (sscanf(line, "process %d %d", &a, &b) == 2 && play.processes < MOST)
        play.process[play.processes++] = (struct process){.pid = a, .mib = b};
}

/* Begins anew with this scenario. */
void stub_load(const char *scenario)
{
    char line[256];
    pthread_mutex_lock(&lock);
    memset(&play, 0, sizeof play);
    play.card = 81559, play.enforce = 1, play.context = 64;
    while (*scenario) {
        size_t length = strcspn(scenario, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, scenario);
        learn(line);
        scenario += length + (scenario[length] == '\n');
    }
    pthread_mutex_unlock(&lock);
}

/* Adds a fact to what is played. */
void stub_add(const char *line)
{
    pthread_mutex_lock(&lock);
    learn(line);
    pthread_mutex_unlock(&lock);
}

static FILE *kept(int pid, const char *mode)
{
    char path[512];
    const char *folder = getenv("CUDA_STUB_STATE");
    if (!folder) return NULL;
    snprintf(path, sizeof path, "%s/%d", folder, pid);
    return fopen(path, mode);
}

static void keep(const struct process *it)
{
    FILE *file = kept(it->pid, "w");
    if (!file) return;
    fprintf(file, "%d %d", it->mib, it->state);
    fclose(file);
}

static struct process *find(int pid)
{
    struct process *it = NULL;
    for (int at = 0; at < play.processes; at++)
        if (play.process[at].pid == pid) it = &play.process[at];
    FILE *file = kept(pid, "r");
    if (!file) return it;
    if (!it && play.processes < MOST) {
        it = &play.process[play.processes++];
        *it = (struct process){.pid = pid};
    }
    if (it && fscanf(file, "%d %d", &it->mib, &it->state) != 2) it = NULL;
    fclose(file);
    return it;
}

/* The state of a process; -1 for one that is not here. */
int stub_state(int pid)
{
    struct process *it = find(pid);
    return it ? it->state : -1;
}

/* MiB that resident processes have of the card together: those checkpointed have none. */
int stub_resident(void)
{
    int sum = 0;
    for (int at = 0; at < play.processes; at++)
        if (play.process[at].state <= LOCKED) sum += play.process[at].mib;
    return sum;
}

static void take_time(const char *call)
{
    for (int at = 0; at < play.delays; at++)
        if (!strcmp(play.delay[at].call, call)) usleep(1000 * play.delay[at].milliseconds);
}

/* What the scenario says that a call answers, or 0. */
static int scripted(const char *call, struct process *about)
{
    for (int at = 0; at < play.answers; at++) {
        struct answer *it = &play.answer[at];
        if (strcmp(it->call, call) || !it->times) continue;
        if (it->times > 0) it->times--;
        if (it->breaks && about) about->state = FAILED;
        return it->code;
    }
    return OK;
}

int cuInit(unsigned flags)
{
    const char *path = getenv("CUDA_STUB_SCENARIO");
    (void)flags;
    if (path && !play.initialised) {
        static char text[8192];
        FILE *file = fopen(path, "r");
        if (file) {
            text[fread(text, 1, sizeof text - 1, file)] = 0;
            fclose(file);
            stub_load(text);
        }
    }
    take_time("cuInit");
    play.initialised = 1;
    return scripted("cuInit", NULL);
}

int cuDeviceGet(int *device, int ordinal)
{
    if (!play.initialised) return NOT_INITIALIZED;
    *device = ordinal;
    return scripted("cuDeviceGet", NULL);
}

/* MiB that this client may take: its limit, where it is a client of MPS and limits bind, or the whole card. */
static long allowed(void)
{
    char control[512];
    const char *pipes = getenv("CUDA_MPS_PIPE_DIRECTORY"), *limit = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    long mib;
    if (!pipes || !limit || !play.enforce || sscanf(limit, "0=%ldM", &mib) != 1) return play.card;
    snprintf(control, sizeof control, "%s/control", pipes);
    return access(control, F_OK) ? play.card : mib;
}

int cuCtxCreate_v2(void **context, unsigned flags, int device)
{
    (void)flags, (void)device;
    take_time("cuCtxCreate_v2");
    int code = scripted("cuCtxCreate_v2", NULL);
    if (code) return code;
    play.taken = play.context;
    *context = &play;
    return play.taken > allowed() ? OUT_OF_MEMORY : OK;
}

int cuMemAlloc_v2(uint64_t *pointer, size_t size)
{
    take_time("cuMemAlloc_v2");
    int code = scripted("cuMemAlloc_v2", NULL);
    if (code) return code;
    long mib = (long)(size >> 20);
    if (play.taken + mib > allowed()) return OUT_OF_MEMORY;
    play.taken += mib;
    keep(&(struct process){.pid = getpid(), .mib = (int)play.taken});
    *pointer = 0x7f0000000000;
    return OK;
}

int cuMemsetD8_v2(uint64_t pointer, unsigned char byte, size_t size)
{
    (void)pointer, (void)byte, (void)size;
    usleep(1000);
    return scripted("cuMemsetD8_v2", NULL);
}

int cuCtxSynchronize(void) { return OK; }

#ifndef OLD_DRIVER
static int moved(const char *call, int pid, int from, int to)
{
    take_time(call);
    pthread_mutex_lock(&lock);
    struct process *it = find(pid);
    int code = scripted(call, it);
    if (!code) code = !it ? INVALID_VALUE : it->state != from ? ILLEGAL_STATE : OK;
    if (!code && to == LOCKED && from == CHECKPOINTED && stub_resident() + it->mib > play.card) {
        it->state = FAILED;
        code = OUT_OF_MEMORY;
    }
    if (!code) it->state = to;
    if (it) keep(it);
    pthread_mutex_unlock(&lock);
    return code;
}

int cuCheckpointProcessLock(int pid, const uint64_t *args)
{
    const char *call = "cuCheckpointProcessLock";
    for (int at = 1; args && at < 8; at++)
        if (args[at]) return INVALID_VALUE;
    return moved(call, pid, RUNNING, LOCKED);
}

int cuCheckpointProcessCheckpoint(int pid, const void *args)
{
    (void)args;
    return moved("cuCheckpointProcessCheckpoint", pid, LOCKED, CHECKPOINTED);
}

int cuCheckpointProcessRestore(int pid, const void *args)
{
    (void)args;
    return moved("cuCheckpointProcessRestore", pid, CHECKPOINTED, LOCKED);
}

int cuCheckpointProcessUnlock(int pid, const void *args)
{
    (void)args;
    return moved("cuCheckpointProcessUnlock", pid, LOCKED, RUNNING);
}

int cuCheckpointProcessGetState(int pid, int *state)
{
    take_time("cuCheckpointProcessGetState");
    int code = scripted("cuCheckpointProcessGetState", NULL);
    if (code) return code;
    struct process *it = find(pid);
    if (!it) return INVALID_VALUE;
    *state = it->state;
    return OK;
}
#endif
