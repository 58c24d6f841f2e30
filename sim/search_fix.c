/* --fix tp=8,pp=4,recompute=selective: fields of the plan that the search leaves alone.
 * A field given twice and fields that contradict each other are errors. */
#include <stdio.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/names.h"
#include "cost/base/unit.h"
#include "sim/search.h"

enum fix_type { FIX_COUNT, FIX_ZERO, FIX_SWITCH, FIX_RECOMPUTE, FIX_ORDER };

struct fix_field {
    const char *name;
    enum fix_type type;
    int *target;
};

static const char *const switch_words[] = {"off", "on", "no", "yes", "0", "1", "false", "true", NULL};
static const char *const order_words[] = {"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", NULL};

static int fix_word(const char *name, const char *const *words, const char *value, int *target, struct err *err)
{
    char all[128];
    int i = names_find(words, value);
    if (i < 0)
        return err_add(err, "--fix %s '%s' is not one of %s", name, value, names_join(words, all, sizeof all));
    *target = i;
    return 0;
}

static int fix_number(const char *name, const char *value, int64_t min, int64_t max, int *target, struct err *err)
{
    int64_t number;
    struct err ignored = {0};
    if (unit_parse_int(value, min, max, &number, &ignored) < 0)
        return err_add(err, "--fix %s '%s' is not a whole number from %lld to %lld", name, value, (long long)min, (long long)max);
    *target = (int)number;
    return 0;
}

static int fix_value(const struct fix_field *f, const char *value, struct err *err)
{
    switch (f->type) {
    case FIX_COUNT: return fix_number(f->name, value, 1, 1 << 20, f->target, err);
    case FIX_ZERO: return fix_number(f->name, value, 0, 3, f->target, err);
    case FIX_RECOMPUTE: return fix_word(f->name, recompute_names, value, f->target, err);
    case FIX_ORDER: return fix_word(f->name, order_words, value, f->target, err);
    case FIX_SWITCH: break;
    }
    if (fix_word(f->name, switch_words, value, f->target, err) < 0)
        return -1;
    *f->target %= 2;
    return 0;
}

/* recompute_layers means something with recompute=full only, and implies it. */
static int fix_recompute(struct search_fix *x, struct err *err)
{
    if (x->recompute_layers < 0)
        return 0;
    if (x->recompute >= 0 && x->recompute != RECOMPUTE_FULL)
        return err_add(err, "--fix recompute_layers goes only with recompute=full, not recompute=%s", recompute_names[x->recompute]);
    x->recompute = RECOMPUTE_FULL;
    return 0;
}

/* Without the blanks around it. */
static char *trim(char *text)
{
    text += strspn(text, " \t");
    size_t n = strlen(text);
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t'))
        text[--n] = 0;
    return text;
}

int search_parse_fix(const char *text, struct search_fix *ret, struct err *err)
{
    struct search_fix x = *ret;
    const struct fix_field fields[] = {
        {"tp", FIX_COUNT, &x.tp}, {"cp", FIX_COUNT, &x.cp}, {"pp", FIX_COUNT, &x.pp}, {"vp", FIX_COUNT, &x.vp}, {"dp", FIX_COUNT, &x.dp},
        {"ep", FIX_COUNT, &x.ep}, {"etp", FIX_COUNT, &x.etp}, {"micro_batch", FIX_COUNT, &x.micro_batch}, {"mbs", FIX_COUNT, &x.micro_batch},
        {"zero", FIX_ZERO, &x.zero}, {"sequence_parallel", FIX_SWITCH, &x.sequence_parallel}, {"sp", FIX_SWITCH, &x.sequence_parallel},
        {"recompute", FIX_RECOMPUTE, &x.recompute}, {"recompute_layers", FIX_COUNT, &x.recompute_layers}, {"rank_order", FIX_ORDER, &x.order}};
    enum { FIELDS = sizeof fields / sizeof *fields };
    const char *names[FIELDS + 1] = {NULL};
    bool seen[FIELDS] = {false};
    int result = 0;
    for (int i = 0; i < FIELDS; i++)
        names[i] = fields[i].name;
    while (*text) {
        size_t length = strcspn(text, ",");
        char item[64], all[256];
        snprintf(item, sizeof item, "%.*s", (int)length, text);
        text += length + (text[length] == ',');
        char *equals = strchr(item, '=');
        if (!equals || length >= sizeof item) {
            result = err_add(err, "--fix '%s' is not of the form name=value", item);
            continue;
        }
        *equals = 0;
        const char *name = trim(item), *value = trim(equals + 1);
        int i = names_find(names, name);
        const char *nearest = i < 0 ? names_nearest(names, name) : NULL;
        bool again = false;
        for (int j = 0; i >= 0 && j < FIELDS; j++)
            again |= seen[j] && fields[j].target == fields[i].target;
        if (nearest)
            result = err_add(err, "--fix knows no '%s'; did you mean '%s'?", name, nearest);
        else if (i < 0)
            result = err_add(err, "--fix knows no '%s'; it can be %s", name, names_join(names, all, sizeof all));
        else if (again)
            result = err_add(err, "--fix %s is there twice", name);
        else if (fix_value(&fields[i], value, err) < 0)
            result = -1;
        else
            seen[i] = true;
    }
    if (result == 0 && fix_recompute(&x, err) < 0)
        result = -1;
    if (result == 0)
        *ret = x;
    return result;
}
