# A container action from its Dockerfile, as GitHub's runner builds and runs it; a build with stages; a volume.
busybox
mkdir -p a w s
echo "test \"\$INPUT_WHO\" = you && echo done >/github/workspace/done && echo out=1 >>\$GITHUB_OUTPUT" >a/entry.sh
printf "FROM lab:1\nCOPY entry.sh /entry.sh\nENTRYPOINT [\"sh\", \"-e\", \"/entry.sh\"]\n" >a/Dockerfile
docker build -t ab12cd:$ID -f a/Dockerfile a
touch w/out
chmod 666 w/out
docker run --name act --label ab12cd --workdir /github/workspace --rm -e INPUT_WHO=you -e GITHUB_OUTPUT=/github/workspace/out -v /var/run/docker.sock:/var/run/docker.sock -v $PWD/w:/github/workspace ab12cd:$ID
own w/done
grep -q out=1 w/out
printf "FROM lab:1 AS one\nARG WHAT\nRUN echo \$WHAT >/made\nFROM lab:1\nCOPY --from=one --chown=7:7 /made /kept\nUSER 7\nRUN test \$(id -u) = 7\n" >s/Dockerfile
docker build --build-arg WHAT=$C -t lab:stages s
docker run --rm lab:stages cat /kept | grep >/dev/null $C
docker volume create lab-data
inside -v lab-data:/v lab:1 sh -c "echo $C >/v/a"
inside -v lab-data:/v:ro lab:1 cat /v/a | grep >/dev/null $C
