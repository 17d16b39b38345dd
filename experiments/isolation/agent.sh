# Starts an agent that makes grants of the cores of nodes 0 to 3, the study's isolation zone, until the script ends.
# Sourced by the scripts beside it, which run as root of a virtual machine.
configuration=$(mktemp)
printf 'policy = "first-touch"\nround_s = 3600\n[reserve]\nenabled = true\nzone = "0-23"\n' > "$configuration"
nearside agent --config "$configuration" > /dev/null &
agent=$!
trap 'kill $agent; wait $agent' EXIT
for look in $(seq 500); do
    nearside reserve enter none --pid $$ 2> /dev/null
    # No such grant: the agent answers.
    [ $? = 1 ] && break
    sleep 0.02
done
