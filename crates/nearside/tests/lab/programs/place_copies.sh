# Runs in the virtual machine of ../place.rs.
    near=$(realpath ../nearside); work=$(realpath ../nearside-workloads); export work
    head -c 8M /dev/urandom > /tmp/shared; sum=$(sha256sum /tmp/shared)
    cat > /tmp/watch <<'END'
        while [ -e /proc/$1 ]; do
            grep -h file=/tmp/shared /proc/$1/numa_maps > /tmp/look.$2 2>/dev/null
            [ -s /tmp/look.$2 ] && cp /tmp/look.$2 /tmp/last.$2
            sleep 0.05
        done
END
    cat > /tmp/readers <<'END'
        for cpu in 0 2 4 6; do
            $work readers --json --file /tmp/shared --size 8M --repeat 120 --pin $cpu > /tmp/reader.$cpu &
            sh /tmp/watch $! $cpu &
        done; wait
END
    $near place --quiet --cpu-limit 20 --policy carrefour --json /tmp/copies.json -- sh /tmp/readers
    echo '[copies]'; cat /tmp/copies.json
    for cpu in 0 2 4 6; do echo "[reader $cpu]"; cat /tmp/reader.$cpu; echo "[maps $cpu]"; cat /tmp/last.$cpu; done
    echo '[file]'; [ "$(sha256sum /tmp/shared)" = "$sum" ] && echo same
    $near place --quiet --json /tmp/alone.json -- ./sharers 1 > /tmp/alone; echo '[alone]'; cat /tmp/alone.json
    $near place --quiet --shared --json /tmp/shared.json -- ./sharers > /tmp/shared; echo '[shared]'; cat /tmp/shared.json
    echo '[shared pages]'; cat /tmp/shared
    setpriv --bounding-set -sys_nice --inh-caps -sys_nice $near place --quiet --shared -- true 2> /tmp/refused
    echo "[refused $?]"; cat /tmp/refused
