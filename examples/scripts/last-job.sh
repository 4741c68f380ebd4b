#!/bin/bash
# `@` is the job that you submitted last, `@~1` the one before it.
set -eu

gbatch --name first sh -c 'echo first >> order.txt'
gbatch --name second --depends-on @ sh -c 'echo second >> order.txt'
gbatch --name third --depends-on-all @,@~1 sh -c 'echo third >> order.txt'
