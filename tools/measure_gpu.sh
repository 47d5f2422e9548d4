#!/usr/bin/env bash
# Measures on one H200 what docs/performance-log.md calls not measured yet, in three calls of nine minutes at most.
#
#     bash tools/measure_gpu.sh 1 [FOLDER]     # then 2, then 3; FOLDER: $OUT, or build/gpu-results
#
# Every part has a time limit, goes on where an earlier run of it ended, and fails alone. Lines and logs lie in
# build/gpu; after each part FOLDER/gpu.tar.gz holds all of them. Tables and figures are drawn from the lines by
# the same commands, run again on a machine that has matplotlib; fp8's answers beside bf16's by
# `ripple bench fp8 --out build/gpu/fp8.jsonl --usual results/decoders-gpu.jsonl --fp8 build/gpu/decoders-fp8.jsonl`.
set -u
cd "$(dirname "$0")/.." || exit 1
call=${1:?which call: 1, 2 or 3}
folder=${2:-${OUT:-build/gpu-results}}
at=build/gpu
limit_s=${LIMIT_S:-530} # of this call
device=${DEVICE:-cuda}
extra=${EXTRA:-}        # for every benchmark of full-size networks, such as --layers 1 for a rehearsal
export PYTHONPATH=src PYTHONUNBUFFERED=1
python=${PYTHON:-python3}
recorded=results/schedules-tiny-llada.jsonl
mkdir -p "$at" "$folder"

save() { tar -czf "$folder/part.tar.gz" -C "$at" . && mv "$folder/part.tar.gz" "$folder/gpu.tar.gz"; }

part() { # NAME SECONDS COMMAND...: run it for so long at most, and no longer than this call
  local name=$1 most=$2 start=$SECONDS left=$((limit_s - SECONDS)) code
  shift 2
  [ "$left" -lt "$most" ] && most=$left
  if [ "$most" -lt 15 ]; then echo "== $name: no time left"; return; fi
  timeout -k 10 "$most" "$@" >>"$at/$name.log" 2>&1
  code=$?
  echo "== $name: exit code $code after $((SECONDS - start)) s"
  tail -n 6 "$at/$name.log" | cut -c 1-600
  save
}

bench() { # NAME SECONDS FILE MEASUREMENT OPTIONS...
  local name=$1 most=$2 out=$3
  shift 3
  part "$name" "$most" "$python" -m ripple bench "$@" --device "$device" --out "$at/$out.jsonl" --json
}

full_size() { # the same, of full-size networks; starts nothing new shortly before its end
  # shellcheck disable=SC2086
  bench "$@" --seconds "$(($2 - 30))" $extra
}

checks() { # every family in a process of its own, since most of the time is compiling; all differences are told
  local only failed=0 families=(kernels llada dream sdar nemotron llada2) pids=()
  for only in "${families[@]}"; do
    "$python" - "$device" "$only" >"$at/check-$only.json" 2>"$at/check-$only.log" <<'END' &
import json
import sys

from ripple.check.paths import check_paths

print(json.dumps(check_paths(sys.argv[1], [sys.argv[2]], goes_on=True)))
END
    pids+=($!)
  done
  for number in "${!pids[@]}"; do
    only=${families[number]}
    if wait "${pids[number]}"; then echo "$only: equal"; else
      failed=1
      echo "$only: $(tail -n 1 "$at/check-$only.log")"
    fi
  done
  return "$failed"
}
export -f checks
export at python device

nvidia-smi --query-gpu=name,clocks.sm,power.draw,temperature.gpu --format=csv,noheader 2>/dev/null
case $call in
1)
  part check 210 bash -c checks
  full_size step-blocks 170 step-blocks step --shapes sdar-8b-b32,nemotron-8b,llada2-mini --prompts 1000 \
    --batches 1 --caches exact --candidates 0,4 --no-check
  full_size step-fp8 150 step-fp8 step --shapes llada-8b --dtypes bf16,fp8 --prompts 1000 --batches 1 \
    --caches dual,none --candidates 0,4 --no-check
  ;;
2)
  full_size replay-fp8 170 replay-fp8 replay --shapes llada-8b --dtypes bf16,fp8 --schedules "$recorded" \
    --items 8 --methods rps,glide --caches dual,slide
  # The budget goes by the load, so its decodings are recorded at the loads that are timed.
  bench schedules-load 90 schedules-load schedules --decoders rps,glide --caches dual --budgets 0.5 --items 16 \
    --at-once 1,8,32,64 --curve results/step-h200.jsonl
  { cat "$recorded"; [ -f "$at/schedules-load.jsonl" ] && cat "$at/schedules-load.jsonl"; } >"$at/schedules.jsonl"
  full_size throughput 200 throughput-load throughput --shapes llada-8b --schedules "$at/schedules.jsonl" \
    --methods rps,glide,confidence --caches dual --batches 1,8,32,64
  for whose in --no-in-thread --in-thread; do
    full_size "step$whose" 70 step-thread step --shapes llada-8b --prompts 1000 --batches 1 --caches dual \
      --candidates 0,4 --no-check $whose
  done
  full_size throughput-slide 60 throughput-load throughput --shapes llada-8b --schedules "$at/schedules.jsonl" \
    --methods glide --caches slide --batches 1,8,32,64
  ;;
3)
  for model in tiny-llada tiny-dream; do # fields that have their usual value, so that nothing is swept
    pivot=0.9 && [ $model = tiny-dream ] && pivot=0.95
    bench "quality-$model" 100 decoders-fp8 decoders --models $model --dtype fp8 --caches none --items 1000 \
      --workers 4 --decoders "rps:tau_pivot=$pivot,glide:cap=4"
  done
  bench logits 60 fp8 fp8 --models tiny-llada,tiny-dream
  bench one-token 260 decoders-sdar decoders --models tiny-sdar --caches exact --items 1000 --workers 4 \
    --decoders default
  bench quality-confidence 120 decoders-fp8 decoders --models tiny-llada,tiny-dream --dtype fp8 --caches dual \
    --items 1000 --workers 4 --decoders confidence
  ;;
*)
  echo "no call $call: 1, 2 or 3" >&2
  exit 2
  ;;
esac
save
