#include "config.h"

#include "sim/writers/chart.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cost/base/clock.h"
#include "cost/base/err.h"
#include "cost/base/file.h"

extern char **environ;

const char *const chart_palette[CHART_COLOURS] = {
    [CHART_BLUE] = "#0072B2", [CHART_ORANGE] = "#E69F00", [CHART_GREEN] = "#009E73",  [CHART_VERMILLION] = "#D55E00",
    [CHART_SKY] = "#56B4E9",  [CHART_PURPLE] = "#CC79A7", [CHART_YELLOW] = "#F0E442", [CHART_BLACK] = "#000000",
};
const char chart_grey[] = "#999999";
const char chart_light_grey[] = "#DDDDDD";

/* A picture of 10,000 bars takes gnuplot about a second; one that hangs is stopped. */
enum { GNUPLOT_PATIENCE_S = 60, OUTPUT_MAX = 16384, PATH_TEXT_MAX = 4096 };

enum format { FORMAT_PNG, FORMAT_SVG, FORMAT_PDF, FORMATS };

static const char *const suffixes[FORMATS] = {".png", ".svg", ".pdf"};

/* What gnuplot can be asked for, best first within a format. */
struct terminal {
    const char *name;
    enum format format;
};
static const struct terminal terminals[] = {
    {"pngcairo", FORMAT_PNG}, {"png", FORMAT_PNG}, {"svg", FORMAT_SVG}, {"pdfcairo", FORMAT_PDF}, {NULL, FORMAT_PNG},
};

static int path_format(const char *path)
{
    size_t length = strlen(path);
    for (int i = 0; i < FORMATS; i++) {
        size_t n = strlen(suffixes[i]);
        if (length > n && strcmp(path + length - n, suffixes[i]) == 0 && path[length - n - 1] != '/')
            return i;
    }
    return -1;
}

int chart_check_path(const char *path, struct err *err)
{
    if (path_format(path) >= 0)
        return file_check_folder(path, err);
    return err_add(err, "chart '%s': the name must end in .png, .svg or .pdf", path);
}

void chart_quote(FILE *out, const char *text)
{
    putc('\'', out);
    for (; *text; text++) {
        if (*text == '\'')
            putc('\'', out);
        putc(*text == '\n' ? ' ' : *text, out);
    }
    putc('\'', out);
}

/* The environment without what could open a window or change the output. Caller frees the array only. */
static char **quiet_environment(void)
{
    static const char *const dropped[] = {"DISPLAY=", "WAYLAND_DISPLAY=", "GNUTERM=", "LC_",
                                          "LANG=",    "LANGUAGE=",        NULL};
    static char locale[] = "LC_ALL=C.UTF-8";
    size_t n = 0, kept = 0;
    while (environ && environ[n])
        n++;
    char **copy = calloc(n + 2, sizeof(*copy));
    if (!copy)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        bool drop = false;
        for (int k = 0; dropped[k]; k++)
            drop = drop || strncmp(environ[i], dropped[k], strlen(dropped[k])) == 0;
        if (!drop)
            copy[kept++] = environ[i];
    }
    copy[kept] = locale;
    return copy;
}

/* Reads until the other end closes; what does not fit is read and dropped. False when time is up. */
static bool read_all(int fd, char *output, size_t size)
{
    double end_s = clock_s() + GNUPLOT_PATIENCE_S;
    size_t used = 0;
    for (;;) {
        double left_s = end_s - clock_s();
        struct pollfd waiting = {.fd = fd, .events = POLLIN};
        int ready = left_s > 0 ? poll(&waiting, 1, (int)(1e3 * left_s) + 1) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            break;
        char text[4096];
        ssize_t n = read(fd, text, sizeof(text));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            output[used] = '\0';
            return true;
        }
        size_t take = (size_t)n < size - 1 - used ? (size_t)n : size - 1 - used;
        memcpy(output + used, text, take);
        used += take;
    }
    output[used] = '\0';
    return false;
}

/* Starts gnuplot with standard input empty and both outputs in one pipe. Returns 0 or an errno. */
static int spawn_gnuplot(char *const argv[], int pipe_read, int pipe_write, pid_t *ret_child)
{
    posix_spawn_file_actions_t actions;
    char **environment = quiet_environment();
    if (!environment)
        return ENOMEM;
    int error = posix_spawn_file_actions_init(&actions);
    if (error == 0) {
        if ((error = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)) == 0 &&
            (error = posix_spawn_file_actions_adddup2(&actions, pipe_write, 1)) == 0 &&
            (error = posix_spawn_file_actions_adddup2(&actions, pipe_write, 2)) == 0 &&
            (error = posix_spawn_file_actions_addclose(&actions, pipe_read)) == 0)
            error = posix_spawnp(ret_child, argv[0], &actions, NULL, argv, environment);
        posix_spawn_file_actions_destroy(&actions);
    }
    free(environment);
    return error;
}

/* The line of gnuplot's complaint that says what is wrong. */
static void pick_message(char *output, char *ret, size_t size)
{
    char *best = NULL, *save = NULL;
    for (char *line = strtok_r(output, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        while (isspace((unsigned char)*line))
            line++;
        if (*line && *line != '^' && !strstr(line, "XDG_RUNTIME_DIR") && !strstr(line, "ontconfig"))
            best = line;
    }
    snprintf(ret, size, "%s", best ? best : "it said nothing");
}

/* 0, or -1 with a sentence. output receives what gnuplot printed. */
static int run_gnuplot(char *const argv[], char *output, size_t size, struct err *err)
{
    int ends[2];
    pid_t child;
    if (pipe(ends) != 0)
        return err_add(err, "no picture: cannot make a pipe: %s", strerror(errno));
    int error = spawn_gnuplot(argv, ends[0], ends[1], &child);
    close(ends[1]);
    if (error != 0) {
        close(ends[0]);
        if (error == ENOENT)
            return err_add(err, "no picture: gnuplot is not installed (Debian: apt-get install gnuplot-nox)");
        return err_add(err, "no picture: cannot start gnuplot: %s", strerror(error));
    }
    bool in_time = read_all(ends[0], output, size);
    close(ends[0]);
    if (!in_time)
        kill(child, SIGKILL);
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return err_add(err, "no picture: lost gnuplot: %s", strerror(errno));
    if (!in_time)
        return err_add(err, "no picture: gnuplot did not finish within %d s", GNUPLOT_PATIENCE_S);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127 && !*output)
        return err_add(err, "no picture: gnuplot is not installed (Debian: apt-get install gnuplot-nox)");
    char message[512];
    pick_message(output, message, sizeof(message));
    return err_add(err, "no picture: gnuplot failed: %s", message);
}

static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = words; (p = strstr(p, word)); p += n)
        if ((p == words || isspace((unsigned char)p[-1])) && (!p[n] || isspace((unsigned char)p[n])))
            return true;
    return false;
}

/* Asks gnuplot which terminals it was built with and takes the best for the format. */
static int choose_terminal(enum format format, const struct terminal **ret_terminal, struct err *err)
{
    char gnuplot[] = "gnuplot", no_init[] = "-d", execute[] = "-e", command[] = "set print '-'; print GPVAL_TERMINALS";
    char *argv[] = {gnuplot, no_init, execute, command, NULL};
    char output[OUTPUT_MAX];
    if (run_gnuplot(argv, output, sizeof(output), err) < 0)
        return -1;
    for (const struct terminal *terminal = terminals; terminal->name; terminal++)
        if (terminal->format == format && has_word(output, terminal->name)) {
            *ret_terminal = terminal;
            return 0;
        }
    char able[64] = "";
    for (const struct terminal *terminal = terminals; terminal->name; terminal++)
        if (has_word(output, terminal->name) && !strstr(able, suffixes[terminal->format]))
            snprintf(able + strlen(able), sizeof(able) - strlen(able), "%s%s", *able ? ", " : "",
                     suffixes[terminal->format]);
    return err_add(err, "no picture: this gnuplot cannot write %s files; it can write: %s", suffixes[format],
                   *able ? able : "none of .png, .svg, .pdf");
}

/* Terminal, size and font: 12 is the same size in all of them; 96 pixels are an inch. */
static void put_terminal(FILE *out, const char *terminal, const struct chart *chart)
{
    static const char font[] = "DejaVu Sans";
    int w = chart->width_px, h = chart->height_px;
    if (strcmp(terminal, "svg") == 0)
        fprintf(out, "set terminal svg noenhanced size %d,%d font '%s,12' background '#FFFFFF'\n", w, h, font);
    else if (strcmp(terminal, "pdfcairo") == 0)
        fprintf(out, "set terminal pdfcairo noenhanced color size %.3fin,%.3fin font '%s,12' fontscale 0.5625\n",
                w / 96.0, h / 96.0, font);
    else if (strcmp(terminal, "pngcairo") == 0)
        fprintf(out, "set terminal pngcairo noenhanced size %d,%d font '%s,12' fontscale 0.75 background '#FFFFFF'\n",
                w, h, font);
    else
        fprintf(out,
                "set terminal png noenhanced truecolor size %d,%d font '%s,12' fontscale 0.75 background '#FFFFFF'\n",
                w, h, font);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The script: runs by itself in its directory (gnuplot out.png.gp), or with data and output given by -e. */
static int write_script(const char *path, const char *terminal, const char *picture, const char *data,
                        const struct chart *chart, struct err *err)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (!out)
        return err_add(err, "no picture: out of memory");
    put_terminal(out, terminal, chart);
    fputs("set encoding utf8\n", out);
    fputs("if (!exists('data')) data = ", out);
    chart_quote(out, base_name(data));
    fputs("\nif (!exists('picture')) picture = ", out);
    chart_quote(out, base_name(picture));
    fputs("\nset output picture\nset datafile separator tab\n", out);
    fprintf(out, "%s\nset output\n", chart->script);
    int result =
        fclose(out) == 0 ? file_write_atomic(path, text, length, err) : err_add(err, "no picture: out of memory");
    free(text);
    return result;
}

/* `data = '...'; picture = '...'; load '...'` for -e; malloc'd. */
static char *drawing_command(const char *script, const char *data, const char *picture)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (!out)
        return NULL;
    fputs("data = ", out);
    chart_quote(out, data);
    fputs("; picture = ", out);
    chart_quote(out, picture);
    fputs("; load ", out);
    chart_quote(out, script);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

/* Draws into a file beside the picture and moves it over the old one when it is whole. */
static int draw(const char *script, const char *data, const char *picture, struct err *err)
{
    char fresh[PATH_TEXT_MAX + 32], output[OUTPUT_MAX];
    snprintf(fresh, sizeof(fresh), "%s.tmp-%ld", picture, (long)getpid());
    char *command = drawing_command(script, data, fresh);
    if (!command)
        return err_add(err, "no picture: out of memory");
    char gnuplot[] = "gnuplot", no_init[] = "-d", execute[] = "-e";
    char *argv[] = {gnuplot, no_init, execute, command, NULL};
    int result = run_gnuplot(argv, output, sizeof(output), err);
    struct stat made;
    if (result == 0 && (stat(fresh, &made) != 0 || made.st_size == 0))
        result = err_add(err, "no picture: gnuplot wrote nothing to '%s'", picture);
    if (result == 0 && rename(fresh, picture) != 0)
        result = err_add(err, "no picture: cannot write '%s': %s", picture, strerror(errno));
    if (result < 0)
        unlink(fresh);
    free(command);
    return result;
}

int chart_draw(const char *path, const struct chart *chart, struct err *err)
{
    static const char *const usual[FORMATS] = {"pngcairo", "svg", "pdfcairo"};
    char data[PATH_TEXT_MAX + 8], script[PATH_TEXT_MAX + 8];
    if (chart_check_path(path, err) < 0)
        return -1;
    if (strlen(path) >= PATH_TEXT_MAX)
        return err_add(err, "no picture: the name of the file is longer than %d bytes", PATH_TEXT_MAX - 1);
    snprintf(data, sizeof(data), "%s.dat", path);
    snprintf(script, sizeof(script), "%s.gp", path);
    enum format format = (enum format)path_format(path);
    const struct terminal *terminal = NULL;
    int chosen = choose_terminal(format, &terminal, err);
    /* Data and script are left even when nothing can be drawn here. */
    if (file_write_atomic(data, chart->data, strlen(chart->data), err) < 0 ||
        write_script(script, terminal ? terminal->name : usual[format], path, data, chart, err) < 0)
        return -1;
    return chosen < 0 ? -1 : draw(script, data, path, err);
}
