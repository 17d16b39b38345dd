# Runs in the virtual machine of ../place.rs: many processes, a full or foreign store of lessons, and other programs at a
# known path.
near="../nearside"; work="../nearside-workloads streamcluster --json --size 16M --pin 0-7"
export XDG_STATE_HOME=/tmp/state
place() { # NAME OPTIONS
    name=$1; shift; echo "[$name]"
    $near place --quiet --policy predict --json /tmp/report "$@" 2> /tmp/note; echo "status $?"
    echo "[note of $name]"; cat /tmp/note; echo "[report of $name]"; cat /tmp/report
}
# All of it has been read from the disk then.
$near place --quiet --policy balanced --round 1 -- ./births > /dev/null
echo '[births]'; for policy in balanced rr-threads; do $near place --quiet --policy $policy --round 1 -- ./births; done
place workers -- ./births forks; place alone -- ./births alone
place forks -- sh -c 'for number in $(seq 1000); do (exit 0) & wait; done; exit 3'
echo '[none left]'; pgrep -c -x nearside
perl -e 'for (1 .. 2000) { my $pid = fork; defined $pid or die; if (!$pid) { sleep 1000; exit } } print "ready\n"; open(my $f, ">", "/tmp/ready"); close $f; sleep 1000' > /dev/null & parent=$!
while [ ! -e /tmp/ready ]; do sleep 0.02; done
echo '[sleepers]'; $near place --quiet --policy predict --round 2.5 --system --json /tmp/report & placing=$!
$work --repeat 150; kill -INT $placing; wait $placing; echo "status $?"; echo '[report of sleepers]'; cat /tmp/report
pkill -P $parent; kill $parent; wait $parent 2> /dev/null
# Another program at the path of a known command.
cp $(realpath $(which sort)) /tmp/program; place known -- /tmp/program /dev/null
cp $(realpath $(which sha1sum)) /tmp/program; place replaced -- /tmp/program /dev/null
place 'known again' -- /tmp/program /dev/null
mkdir -p $XDG_STATE_HOME; mount -t tmpfs -o size=4k,mode=700 none $XDG_STATE_HOME && mkdir $XDG_STATE_HOME/nearside; head -c 4096 /dev/zero > $XDG_STATE_HOME/filler 2> /dev/null
place full -- /tmp/program /dev/null
rm -f $XDG_STATE_HOME/filler; umount $XDG_STATE_HOME
echo '[end]'
