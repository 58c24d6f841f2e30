#include "kernels/cpu/cpu.h"

#include "kernels/ref/ref.h"

const struct kernels kernels_cpu = {
    .name = "cpu",
    .gemm = cpu_gemm,
    .norm_forward = cpu_norm_forward,
    .norm_apply = ref_norm_apply,
    .norm_backward = cpu_norm_backward,
    .rotary = ref_rotary,
    .attention_forward = cpu_attention_forward,
    .attention_backward = cpu_attention_backward,
    .activation_forward = cpu_activation_forward,
    .activation_backward = cpu_activation_backward,
    .add = ref_add,
    .scale = ref_scale,
    .copy_block = ref_copy_block,
    .round_bf16 = ref_round_bf16,
    .bias_add = ref_bias_add,
    .column_sum = ref_column_sum,
    .embedding_forward = ref_embedding_forward,
    .embedding_backward = ref_embedding_backward,
    .logits_max = cpu_logits_max,
    .logits_sum = cpu_logits_sum,
    .logits_gradient = cpu_logits_gradient,
    .router_forward = ref_router_forward,
    .router_backward = ref_router_backward,
    .gather_rows = ref_gather_rows,
    .scatter_rows = ref_scatter_rows,
    .dot_rows = ref_dot_rows,
    .adamw = cpu_adamw,
    .sum_squares = cpu_sum_squares,
};
