#include "exec/predicted.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cost/base/err.h"
#include "cost/base/json.h"

enum { ANSWER_MAX = 1 << 20, NOT_STARTED = 127 };

/* beside: .../plansim next to this program, or in ../sim of a build tree. */
static void find_plansim(char *path, size_t size)
{
    static const char *const places[] = {"plansim", "../sim/plansim"};
    char self[3072];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    snprintf(path, size, "plansim");
    if (length <= 0)
        return;
    self[length] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        slash[1] = '\0';
    for (int i = 0; i < 2; i++) {
        char candidate[4096];
        snprintf(candidate, sizeof candidate, "%s%s", self, places[i]);
        if (access(candidate, X_OK) == 0) {
            snprintf(path, size, "%s", candidate);
            return;
        }
    }
}

/* Standard output of a program; returns its exit code, NOT_STARTED when there is none, -1 when the system refuses. */
static int output_of(char *const argv[], char *answer, size_t size)
{
    int ends[2], status = -1;
    if (pipe(ends) < 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execvp(argv[0], argv);
        _exit(NOT_STARTED);
    }
    close(ends[1]);
    size_t used = 0;
    ssize_t got;
    while (child > 0 && used + 1 < size && (got = read(ends[0], answer + used, size - used - 1)) > 0)
        used += (size_t)got;
    answer[used] = '\0';
    close(ends[0]);
    if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

static double number_at(const struct json *object, const char *key)
{
    const struct json *node = object ? json_get(object, key) : NULL;
    return node && json_type(node) == JSON_NUMBER ? json_double(node) : 0;
}

static void read_chunks(const struct json *root, struct predicted *ret)
{
    const struct json *chunks = json_get(root, "chunk_s");
    const struct json *chunk = chunks && json_type(chunks) == JSON_ARRAY ? json_first(chunks) : NULL;
    for (; chunk && ret->n_chunks < PREDICTED_CHUNKS_MAX; chunk = json_next(chunk)) {
        double *seconds = ret->chunk_s[ret->n_chunks++];
        seconds[0] = number_at(chunk, "F");
        seconds[1] = number_at(chunk, "B");
        seconds[2] = number_at(chunk, "W");
    }
}

static void read_prediction(const struct json *root, struct predicted *ret)
{
    const struct json *memory = json_get(root, "memory_bytes"), *phase = json_get(root, "phase_s"),
                      *inside = json_get(root, "inside_s");
    *ret = (struct predicted){.step_time_s = number_at(root, "step_time_s"),
                              .bubble_fraction = number_at(root, "bubble_fraction"),
                              .peak_bytes = number_at(memory, "peak"),
                              .forward_s = number_at(phase, "F"),
                              .backward_s = number_at(phase, "B") + number_at(phase, "W"),
                              .wait_s = number_at(phase, "wait"),
                              .end_s = number_at(phase, "end"),
                              .reduction_s = number_at(phase, "reduction"),
                              .optimizer_s = number_at(phase, "optimizer"),
                              .gather_s = number_at(phase, "gather"),
                              .overhead_s = number_at(phase, "overhead"),
                              .recompute_s = number_at(inside, "recompute"),
                              .tp_s = number_at(inside, "tp"),
                              .cp_s = number_at(inside, "cp"),
                              .ep_s = number_at(inside, "ep"),
                              .dp_s = number_at(inside, "dp")};
    read_chunks(root, ret);
}

int predicted_load(const char *model, const char *plan, const char *cluster, const char *profile, struct predicted *ret,
                   struct err *err)
{
    char plansim[4096], *answer = malloc(ANSWER_MAX);
    if (!answer)
        abort();
    find_plansim(plansim, sizeof plansim);
    const char *argv[] = {plansim,
                          "predict",
                          "--model",
                          model,
                          "--plan",
                          plan,
                          "--cluster",
                          cluster,
                          "--format",
                          "json",
                          profile ? "--profile" : NULL,
                          profile,
                          NULL};
    int code = output_of((char *const *)argv, answer, ANSWER_MAX);
    struct json *root = NULL;
    int result = 0;
    if (code == NOT_STARTED)
        result = err_add(err, "'%s' cannot be started: it is neither beside this program nor in PATH; no prediction",
                         plansim);
    else if (code < 0 || code > EXIT_NO)
        result = err_add(err, "'%s predict' ended with exit code %d: no prediction", plansim, code);
    else
        result = json_parse(answer, strlen(answer), "plansim predict", &root, err);
    if (result == 0) {
        read_prediction(root, ret);
        json_free(root);
    }
    free(answer);
    return result;
}
