# Runs a Spark worker that sees nothing of this machine's disk but the system, Spark's jars and what is shared with it.
# In new user, mount and process namespaces: spark_machine.sh ROOT SPARK JAVA_HOME SHARED COMMAND...
set -eu
root=$1 spark=$2 java=$3 shared=$4
shift 4
for part in usr bin sbin lib lib64 etc; do
    if [ -L "/$part" ]; then
        ln -sfn "$(readlink "/$part")" "$root/$part"
    elif [ -d "/$part" ]; then
        mkdir -p "$root/$part"
        mount --rbind "/$part" "$root/$part"
    fi
done
mkdir -p "$root/proc" "$root/dev" "$root/tmp" "$root/work" "$root/spark" "$root$shared"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount --bind "$spark" "$root/spark"
mount --bind "$shared" "$root$shared"
if [ ! -d "$root$java" ]; then
    mkdir -p "$root$java"
    mount --bind "$java" "$root$java"
fi
exec chroot "$root" /usr/bin/env --chdir=/work "$@"
