# Runs in the virtual machine of ../place.rs.
export XDG_STATE_HOME=/tmp/state
folder=$XDG_STATE_HOME/nearside
place() { # NAME REPEAT OPTIONS...
    name=$1; repeat=$2; shift 2
    echo "[$name]"
    ../nearside place --quiet --policy predict --threshold spread_start=0 --json /tmp/report "$@" -- \
        ../nearside-workloads streamcluster --json --size 16M --pin 0-7 --repeat "$repeat" 2>/tmp/note
    echo "[report of $name]"; cat /tmp/report
}
place first 60
place second 60
place 'with other arguments' 3
place forgotten 60 --forget
for name in 'alone' 'alone again'; do
    echo "[$name]"
    ../nearside place --quiet --policy predict --json /tmp/report -- sort /dev/null
    echo "[report of $name]"; cat /tmp/report
done
echo '[mode]'; stat -c %a "$folder/lessons.json" "$folder" | tr '\n' ' '; echo
echo broken >"$folder/lessons.json"
place damaged 3
echo '[note]'; cat /tmp/note
echo '[end]'
