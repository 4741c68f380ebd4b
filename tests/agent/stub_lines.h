/* How our stand-ins for vendors' libraries read what they play: text, one fact a line. Included where `now`, the scenario,
 * and `take`, which takes one line into it, are defined. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned played; /* scenarios so far */

/* Replaces the scenario, for all threads. */
void stub_load(const char *scenario)
{
    char line[256];
    pthread_mutex_lock(&lock);
    memset(&now, 0, sizeof now);
    played++;
    while (*scenario) {
        size_t length = strcspn(scenario, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, scenario);
        take(line);
        scenario += length + (scenario[length] == '\n');
    }
    pthread_mutex_unlock(&lock);
}

/* From the file that this variable of the environment names, if it does. */
static void load_named(const char *variable)
{
    static char text[65536];
    FILE *file = getenv(variable) ? fopen(getenv(variable), "r") : NULL;
    if (!file) return;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    stub_load(text);
}
