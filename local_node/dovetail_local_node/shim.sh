# Waits for one job's process, so that its exit code survives the end of the local node. Arguments: the folder of the
# run, then the command. The first shim of a run creates `started`; any other one ends without running anything.
set -C
read -r stat </proc/$$/stat && { echo "$stat" >"$1/started"; } 2>/dev/null || exit 0
folder=$1
shift
# Signals to the process group are for the job. A handler, unlike `trap ''`, is not inherited.
trap : HUP INT QUIT USR1 USR2
# At a shutdown, a job can answer SIGTERM with exit code 0 although its work is not done.
trap 'echo >>"$folder/terminated"' TERM
"$@"
echo $? >"$folder/ended"
