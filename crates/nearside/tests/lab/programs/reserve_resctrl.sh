# The kernel's own resctrl on a machine with control hardware: by hand, by pqos, and for grants.
R=/sys/fs/resctrl
mount -t resctrl resctrl $R
echo "[offer]"; cat $R/schemata; ls $R/mon_data; cd /sys/devices/system/cpu/cpu7/cache/index3; cat id size ways_of_associativity shared_cpu_list; cd - > /dev/null
chase() { numactl -m 0 $W chase --pin 0 --size 2M --repeat 4; }
echo "[alone]"; chase
numactl -m 0 $W rivals --pin 1 --rivals 2-5 --size 8M --repeat 100000 > /dev/null & streams=$!; sleep 0.1
echo "[shared]"; chase
mkdir $R/one; echo 0 > $R/one/cpus_list; echo "L3:0=ffc00" > $R/one/schemata; echo "L3:0=003ff" > $R/schemata
echo "[half each]"; chase
drawn() { cat $R/mon_data/mon_L3_00/mbm_total_bytes; }
rate() { before=$(drawn); begin=$(date +%s%N); sleep 0.05; echo "$1 $((($(drawn) - before) * 1000 / ($(date +%s%N) - begin)))"; }
echo "[rates]"; rate free; echo "MB:0=8" > $R/schemata; rate limited; rmdir $R/one
echo "MB:0=2048" > $R/schemata; echo "L3:0=fffff" > $R/schemata
echo "[pqos]"; pqos -I -e "llc@0:1=0x3ff;mba@0:1=16" > /dev/null 2>&1; pqos -I -a "llc:1=1-5" > /dev/null 2>&1
cat $R/COS1/cpus_list; grep -o "0= *[0-9a-f]*" $R/COS1/schemata; pqos -I -R > /dev/null 2>&1; cat $R/COS1/cpus_list; rmdir $R/COS*
echo "[grant]"
reserve() { nearside reserve run --node 0 --cpus 0 --isolate "$@" 2> /tmp/said; }
reserve core --cache-ways 10 -- $W chase --pin 0 --size 2M --repeat 4; cat /tmp/said
reserve core,controller --bandwidth 5.9G --strict -- $W rivals --pin 0 --size 32M --repeat 4
echo "[agent]"
echo "monitor_s = 0.02" >> /tmp/agent.toml; start
nearside reserve create --name high --node 0 --cpus 0 --isolate core,controller --cache-ways 10 --bandwidth 5.9G > /dev/null
nearside reserve enter high -- $W rivals --pin 0 --size 32M --repeat 100000 > /dev/null & reads=$!
counted() { nearside reserve list | grep high | grep -qE ' 5\.9/0\.0 +[4-6]\.[0-9]/'; }
wait_for counted; nearside reserve list | sed 's/  */ /g'; find $R -name "nearside-*" | sort
kill $reads; nearside reserve release high; kill -TERM $service; wait $service; echo "status $?"; find $R -name "nearside-*"
kill $streams; wait $streams 2> /dev/null; cat $R/schemata
echo "[end]"
