# Read by config.sh: keeps the environment of this moment for the runner (`.env`, `.path`), as GitHub's does.
touch .env
echo "$PATH" >.path
for name in LANG JAVA_HOME ANT_HOME M2_HOME ANDROID_HOME ANDROID_SDK_ROOT GRADLE_HOME NVM_BIN NVM_PATH LD_LIBRARY_PATH PERL5LIB; do
    if [ -n "${!name}" ] && ! grep -q "$name=" .env; then
        echo "$name=${!name}" >>.env
    fi
done
