#!/bin/sh
# The notebook's cells run as they stand, on a table of two runs; through jupyter as well where it is installed.
set -u
program=$(CDPATH="" cd "$(dirname "$1")" && pwd)/$(basename "$1")
source=$(CDPATH="" cd "$2" && pwd)
command -v python3 > /dev/null || exit 77
work=$(mktemp -d) || exit 4
trap 'rm -rf "$work"' EXIT
cat > "$work/models.json" <<END
{"m": {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
 "num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 8192}}
END
cat > "$work/runs.csv" <<END
id,group,stack,accelerator,gpus,model,tp,pp,mbs,gbs,seq_len,step_time_s
a,mine,megatron,h100-sxm,8,m,2,1,1,64,4096,3.1
b,mine,megatron,h100-sxm,8,m,1,2,1,64,4096,3.4
END
PLANSIM=$program RUNS=$work/runs.csv MODELS=$work/models.json
export PLANSIM RUNS MODELS
cd "$work" || exit 4
python3 - "$source/notebooks/accuracy.ipynb" > out.txt <<'END' || { echo "notebook: a cell failed"; exit 1; }
import json, sys
space = {}
for cell in json.load(open(sys.argv[1]))['cells']:
    if cell['cell_type'] == 'code':
        exec(compile(''.join(cell['source']), 'cell', 'exec'), space)
END
grep -q 'mine  .* 2 ' out.txt || { echo "notebook: no table of groups"; cat out.txt; exit 1; }
if command -v jupyter > /dev/null; then
    jupyter nbconvert --to notebook --execute --output-dir . "$source/notebooks/accuracy.ipynb" > /dev/null 2>&1 || { echo "notebook: jupyter failed"; exit 1; }
fi
exit 0
