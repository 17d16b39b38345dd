#!/bin/sh
# Random mixes of readers: the forecast of their slow-downs beside what is measured.
#
# mixes.sh known|guarded|unknown COUNT [SEED]: prints a line for each reader, and in the end how far the forecasts are off,
# in percentage points, and as JSON: there 1.03 is an error of 3 points.
#
# A mix has two to eight readers, on cores of any nodes, and memory of two nodes. Known ones say how much they read, and are
# only there if they are granted beside those before; half of the guarded ones guard their controller as well, and may be
# slowed by 5 %. Unknown ones count as the worse of reading and writing.
#
# mixes.sh exact: prints as JSON what forecasts without an error would give.
json='{"seconds": %.9f, "median": %f, "nine_of_ten": %f, "beyond": %f}\n'
[ $1 = exact ] && printf "$json" 1 1 1 1 && exit
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
        guards=0
        [ $kind = guarded ] && random 2 && guards=$drawn
        pair=$folder/$((core / 6)).$memory
        [ -e $pair ] || measured "$(reader $core $memory)" > $pair
        cp $folder/plan $folder/next
        printf '[[request]]\ncpus = "%s"\nnode = %s\n' $core $memory >> $folder/next
        [ $guards = 0 ] || echo 'isolate = ["core", "controller"]' >> $folder/next
        # 8 MiB a pass.
        [ $kind = unknown ] || awk '{ printf "bandwidth = \"%.0f\"\n", 8388608 / $1 }' $pair >> $folder/next
        plan $folder/next > $folder/decision || continue
        mv $folder/next $folder/plan
        cores="$cores $core"
        set -- "$@" "$(reader $core $memory)"
        echo "$mix $core $memory $(cat $pair) $guards" >> $folder/alone
    done
    plan $folder/plan | sed -n '/"slowdown": {/,/}/s/.*"[0-9]*": \([0-9.e-]*\).*/\1/p' > $folder/forecast
    measured "$@" > $folder/measured
    paste -d ' ' $folder/alone $folder/forecast $folder/measured
done > $folder/all
awk '{ printf "mix %d, core %d, memory of node %d%s: forecast %+.1f %%, measured %+.1f %%\n", $1, $2, $3, $5 ? ", guarded" : "", 100 * $6, 100 * ($7 / $4 - 1) }' $folder/all
awk '{ printf "%.1f\n", 100 * ($6 - ($7 / $4 - 1)) }' $folder/all > $folder/over
# By how much a guarded one exceeds its bound at worst.
beyond=$(awk '{ over = 100 * ($7 / $4 - 1) - 5 } $5 && over > most { most = over } END { printf "%.1f", most }' $folder/all)
awk '{ print $1 < 0 ? -$1 : $1 }' $folder/over | sort -g > $folder/off
at() { sed -n "$(((($(wc -l < $folder/off) - 1) * $1) / 10 + 1))p" $folder/off; }
echo "$(wc -l < $folder/off) readers: off by $(at 5) points in the median, 9 of 10 by at most $(at 9), all by at most $(at 10)"
echo "the slow-down exceeds its forecast by at most $(sort -g $folder/over | head -1 | sed 's/^-//') points, and the bound of a guarded one by $beyond"
mean=$(awk '{ seconds += $7 } END { print seconds / NR }' $folder/all)
printf "$json" $mean $(echo $(at 5) $(at 9) $beyond | awk '{ print 1 + $1 / 100, 1 + $2 / 100, 1 + $3 / 100 }')
rm -r $folder
