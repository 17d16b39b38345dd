# Runs in the virtual machine of ../run.rs.
near=$PWD/../nearside; mapped=$PWD/mapped
chmod 1777 /tmp; cd /tmp; chmod 755 /tmp
head -c 400K /dev/zero | tr '\0' a > file; ln -s file link; mkfifo pipe; cat file > /dev/null
user="setpriv --reuid 65534 --regid 65534 --clear-groups"
mounts() { grep -c nearside /proc/self/mounts; }
echo '[root]'; $near run -N 2 --replicate /tmp/link -- $mapped file
echo '[user]'; $user $near run -N 1 --replicate file -- $mapped link
echo '[two]'; $near run -N 1 --interleave 0,3 --replicate file -- $mapped file
echo '[other]'; $near run -N 1 --replicate file -- sh -c 'echo changed >> file' 2>&1; $mapped file; mounts
echo '[wrong]'
for wrong in "-N 1 --replicate /tmp" "-N 1 --replicate missing" "-N 1 --replicate pipe" "--replicate file"; do
    $near run $wrong -- true 2>&1; echo "status $?"
done
echo 0 > /proc/sys/user/max_user_namespaces
$user $near run -N 1 --replicate file -- true 2>&1; echo "status $?"
mounts
echo '[end]'
