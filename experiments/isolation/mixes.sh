#!/bin/sh
# Random mixes of readers: the forecast of their slow-downs beside what is measured.
#
# mixes.sh known|unknown COUNT [SEED]: prints a line for each reader, and in the end how far the forecasts are off, in
# percentage points.
#
# A mix has two to eight readers, on cores of any nodes, and memory of two nodes. Known ones say how much they read, and are
# only there if they are granted beside those before; unknown ones count as the worse of reading and writing.
kind=$1
count=$2
seed=${3:-1}
folder=$(mktemp -d)
random() { seed=$(((seed * 1103515245 + 12345) % 2147483648)); drawn=$((seed / 65536 % $1)); }
reader() { echo "nearside run --physcpubind $1 --membind $2 nearside-workloads rivals --size 8M --repeat 1000000"; }
measured() { nearside-workloads crowd --json "$@" | grep -o '"passes":[0-9]*,"seconds":[0-9.e-]*' | sed 's/.*://'; }
plan() { nearside reserve plan $1 --machine magny-cours-4p --json; }
for mix in $(seq $count); do
    random 8; first=$drawn
    random 7; second=$(((first + 1 + drawn) % 8))
    random 7; readers=$((2 + drawn))
    cores=
    set --
    printf '[control]\nthrottle = "none"\n' > $folder/plan
    : > $folder/alone
    for reader in $(seq $readers); do
        random 48; core=$drawn
        case " $cores " in *" $core "*) continue ;; esac
        random 2; [ $drawn = 0 ] && memory=$first || memory=$second
        pair=$folder/$((core / 6)).$memory
        [ -e $pair ] || measured "$(reader $core $memory)" > $pair
        cp $folder/plan $folder/next
        printf '[[request]]\ncpus = "%s"\nnode = %s\n' $core $memory >> $folder/next
        # 8 MiB a pass.
        [ $kind = unknown ] || awk '{ printf "bandwidth = \"%.0f\"\n", 8388608 / $1 }' $pair >> $folder/next
        plan $folder/next > $folder/decision || continue
        mv $folder/next $folder/plan
        cores="$cores $core"
        set -- "$@" "$(reader $core $memory)"
        echo "$mix $core $memory $(cat $pair)" >> $folder/alone
    done
    plan $folder/plan | sed -n '/"slowdown": {/,/}/s/.*"[0-9]*": \([0-9.e-]*\).*/\1/p' > $folder/forecast
    measured "$@" > $folder/measured
    paste -d ' ' $folder/alone $folder/forecast $folder/measured
done > $folder/all
awk '{ printf "mix %d, core %d, memory of node %d: forecast %+.1f %%, measured %+.1f %%\n", $1, $2, $3, 100 * $5, 100 * ($6 / $4 - 1) }' $folder/all
awk '{ printf "%.1f\n", 100 * ($5 - ($6 / $4 - 1)) }' $folder/all > $folder/over
awk '{ print $1 < 0 ? -$1 : $1 }' $folder/over | sort -g > $folder/off
at() { sed -n "$(((($(wc -l < $folder/off) - 1) * $1) / 10 + 1))p" $folder/off; }
echo "$(wc -l < $folder/off) readers: off by $(at 5) points in the median, 9 of 10 by at most $(at 9), all by at most $(at 10)"
echo "the slow-down exceeds its forecast by at most $(sort -g $folder/over | head -1 | sed 's/^-//') points"
rm -r $folder
