"""Why a pod, a job or a request goes where it goes, or nowhere: every node's answer, and what would have to change.

Pure: a picture of the cluster in, an `Answer` out. It asks the engine and decides nothing itself.

question   what is asked, of which cluster
answer     each node's answer and the summary: values
asking     the question put to every node
changes    what would have to change: each of the modules below, in the order of what is told first
departing  claims whose end would make room
mending    cordons, bad devices and strangers in the way
relaxing   the same question with less asked
"""
