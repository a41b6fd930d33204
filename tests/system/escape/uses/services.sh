# GitHub's runner's own calls for `container:` with `services:`: a network, a service with a published port, a job's container
# that finds the service by its name and runs a step in the workspace.
busybox
docker network create --label ab12cd github_network_$ID
S=$(docker create --name svc --label ab12cd --network github_network_$ID --network-alias web -p 4720:80 -e A=b lab:1 sh -c "echo from-service >/tmp/index.html; httpd -f -p 80 -h /tmp")
docker start $S
docker ps --all --filter id=$S --filter status=running --no-trunc --format "{{.ID}} {{.Status}}" | grep >/dev/null $S
docker port $S | grep -E >/dev/null "^80/tcp -> .+:4720$"
docker inspect --format "{{if .Config.Healthcheck}}{{print .State.Health.Status}}{{end}}" $S
mkdir -p _work _temp
echo "echo step; wget -qO- http://web/; id -u; echo made >/__w/made" >_temp/step.sh
J=$(docker create --name job --label ab12cd --workdir /__w/app --network github_network_$ID -e HOME=/github/home -e GITHUB_ACTIONS=true -v /var/run/docker.sock:/var/run/docker.sock -v $PWD/_work:/__w -v $PWD/_temp:/__t --entrypoint sleep lab:1 999)
docker start $J
docker inspect --format "{{range .Config.Env}}{{println .}}{{end}}" $J | grep >/dev/null GITHUB_ACTIONS=true
docker exec -i --workdir /__w -e CI=true $J sh -e /__t/step.sh | grep >/dev/null from-service
own _work/made
wget -T 5 -qO- http://127.0.0.1:4720/ | grep >/dev/null from-service
docker logs --details $S
docker rm --force $J
docker rm --force $S
docker network rm github_network_$ID
