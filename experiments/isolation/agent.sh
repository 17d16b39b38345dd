# Starts an agent that makes grants of the cores in $zone, or else of nodes 0 to 3, the study's isolation zone.
# THROTTLE says what limits the rest of the machine; without it, the best that there is.
# Sourced by the scripts beside it, which run as root of a virtual machine; the agent ends with them.
configuration=$(mktemp)
printf 'policy = "first-touch"\nround_s = 3600\n[reserve]\nenabled = true\nzone = "%s"\nthrottle = "%s"\n' "${zone:-0-23}" "${THROTTLE:-best}" > "$configuration"
nearside agent --config "$configuration" > /dev/null &
agent=$!
trap 'kill $agent; wait $agent' EXIT
for look in $(seq 500); do
    nearside reserve enter none --pid $$ 2> /dev/null
    # No such grant: the agent answers.
    [ $? = 1 ] && answers=yes && break
    sleep 0.02
done
# Without it, grants would be carried out by each command alone: another experiment.
[ "$answers" ] || exit 1
