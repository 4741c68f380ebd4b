#!/bin/bash
# Three steps, each after the one before it has succeeded. gbatch prints nothing but the line with the number.
set -eu

ID1=$(gbatch --name preprocess sh -c 'echo "1 2 3" > data.txt' | grep -oP '\d+')
ID2=$(gbatch --name train --depends-on "$ID1" sh -c 'wc -w < data.txt > model.txt' | grep -oP '\d+')
ID3=$(gbatch --name evaluate --depends-on "$ID2" sh -c 'echo "words: $(cat model.txt)" > report.txt' | grep -oP '\d+')

echo "Submitted $ID1 -> $ID2 -> $ID3"
