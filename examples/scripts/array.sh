#!/bin/bash
# GFLOW --array 0-3
# GFLOW --name fold
# GFLOW --time 10
# One task for each index, from options in the script itself: submit it with `gbatch array.sh`.
echo "fold $GFLOW_ARRAY_TASK_ID" > "fold-$GFLOW_ARRAY_TASK_ID.txt"
