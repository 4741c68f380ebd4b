#!/bin/bash
# A job for each pair of values, called as people call such runs: lr0.001_bs32.
set -eu

for lr in 0.001 0.01; do
  for bs in 32 64; do
    gbatch --name "lr${lr}_bs${bs}" --priority 20 sh -c "echo lr=$lr bs=$bs > result-$lr-$bs.txt"
  done
done
