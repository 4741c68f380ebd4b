"""The scheduling loop: cycles over waiting jobs, estimates, and the use of quotas.

loop                    runs one cycle after another
wake_up                 when the next cycle runs
time_slices             shares the event loop with other tasks
pausable                iterators whose deep calls pause for the event loop
cycle                   one cycle: inputs and verdicts
cycle_caches            what cycles cache for each other
verdict_updates         which new verdicts replace the previous ones
overtaken_plans         plans that newer facts contradict
moving                  what is held at the destinations of moves, and what starts there
move_planner            which moves begin, and which are given up
move_search             plans of moves for waiting jobs
preemption_candidates   which jobs may be preempted
preemption_notices      which running jobs are to end, and for which job
start_estimates         when waiting jobs start
quota_status            writes the use of quotas
reshaping               optional: partitions GPUs in MIG mode again
"""
