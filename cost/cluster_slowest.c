/* The slowest member of a mixed cluster: peaks, bandwidths and memory the least of
 * the groups, times the most. A fitted form belongs together, so it is taken whole
 * from the accelerator where it is slowest (lowest peak x efficiency), with the
 * efficiency restated against the lowest peak. A rate class or head dimension that
 * one member lacks is lacking. Never an average (V14 of the cases). */
#include <stdio.h>
#include <string.h>

#include "cost/cluster_internal.h"
#include "cost/profile_fields.h"

static void worst_fields(const struct accelerator *other, struct accelerator *worst)
{
    for (const struct profile_field *field = profile_fields(SECTION_ACCELERATOR); field->name != NULL; field++) {
        if (field->dimension == DIMENSION_NAME || field->slower == 0)
            continue;
        double a = profile_field_get(field, worst), b = profile_field_get(field, other);
        if (field->slower > 0 ? b > a : b < a)
            profile_field_set(field, worst, b, NULL);
    }
}

/* The member whose achieved rate is the least; rates: FLOP/s by member. */
static int least(const double *rates, int n)
{
    int worst = 0;
    for (int i = 1; i < n; i++)
        worst = rates[i] < rates[worst] ? i : worst;
    return worst;
}

static void worst_rate_forms(const struct cluster *cluster, int rate, struct accelerator *ret)
{
    double gemm[CLUSTER_GROUPS_MAX], expert[CLUSTER_GROUPS_MAX], peak = ret->peak_flop_per_s[rate];
    for (int i = 0; i < cluster->n_groups; i++) {
        const struct accelerator *a = &cluster->group[i].accelerator;
        gemm[i] = a->peak_flop_per_s[rate] * a->gemm[rate].eff;
        expert[i] = a->peak_flop_per_s[rate] * a->expert[rate].eff;
    }
    int i = least(gemm, cluster->n_groups), j = least(expert, cluster->n_groups);
    ret->gemm[rate] = cluster->group[i].accelerator.gemm[rate];
    ret->expert[rate] = cluster->group[j].accelerator.expert[rate];
    ret->gemm[rate].eff = peak > 0 ? gemm[i] / peak : 0;
    ret->expert[rate].eff = peak > 0 ? expert[j] / peak : 0;
}

static const struct attention_form *find_attention(const struct accelerator *a, int head_dim)
{
    for (int i = 0; i < a->n_attention; i++) {
        if (a->attention[i].head_dim == head_dim)
            return &a->attention[i];
    }
    return NULL;
}

static void worst_attention(const struct cluster *cluster, struct accelerator *ret)
{
    const struct accelerator *first = &cluster->group[0].accelerator;
    ret->n_attention = 0;
    for (int f = 0; f < first->n_attention; f++) {
        double rates[CLUSTER_GROUPS_MAX];
        bool everywhere = true;
        for (int i = 0; i < cluster->n_groups; i++) {
            const struct accelerator *a = &cluster->group[i].accelerator;
            const struct attention_form *form = find_attention(a, first->attention[f].head_dim);
            everywhere = everywhere && form != NULL;
            rates[i] = form != NULL ? a->peak_flop_per_s[RATE_16BIT] * form->eff : 0;
        }
        if (!everywhere)
            continue;
        int i = least(rates, cluster->n_groups);
        struct attention_form form = *find_attention(&cluster->group[i].accelerator, first->attention[f].head_dim);
        form.eff = rates[i] / ret->peak_flop_per_s[RATE_16BIT];
        ret->attention[ret->n_attention++] = form;
    }
    if (ret->n_attention == 0) { /* no head dimension in common: the first member's, against the least peak */
        ret->attention[0] = first->attention[0];
        ret->n_attention = 1;
    }
}

/* Those written into a cluster file without a name of their own may share one and still differ. */
static bool same_accelerator(const struct accelerator *a, const struct accelerator *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

bool cluster_slowest(const struct cluster *cluster, struct accelerator *ret)
{
    *ret = cluster->group[0].accelerator;
    size_t used = strlen(ret->name);
    bool mixed = false;
    for (int i = 1; i < cluster->n_groups; i++) {
        const struct accelerator *a = &cluster->group[i].accelerator;
        bool known = false;
        for (int j = 0; j < i; j++)
            known = known || same_accelerator(&cluster->group[j].accelerator, a);
        if (known)
            continue;
        mixed = true;
        if (used < sizeof(ret->name))
            used += (size_t)snprintf(ret->name + used, sizeof(ret->name) - used, "+%s", a->name);
        worst_fields(a, ret);
        ret->provenance = a->provenance > ret->provenance ? a->provenance : ret->provenance;
    }
    if (!mixed)
        return false;
    for (int rate = 0; rate < RATES; rate++)
        worst_rate_forms(cluster, rate, ret);
    worst_attention(cluster, ret);
    return true;
}
