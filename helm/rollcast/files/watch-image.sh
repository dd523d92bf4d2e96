# Ends with 1 and one sentence if no node can pull $IMAGE, by what the API server says of the pods at $PODS; else with 0.
account=/var/run/secrets/kubernetes.io/serviceaccount
case $KUBERNETES_SERVICE_HOST in *:*) host="[$KUBERNETES_SERVICE_HOST]" ;; *) host=$KUBERNETES_SERVICE_HOST ;; esac
address="https://$host:$KUBERNETES_SERVICE_PORT$PODS"

ask() {
	token="Authorization: Bearer $(cat "$account/token")"
	if command -v curl >/dev/null; then
		curl -sf --max-time 10 --cacert "$account/ca.crt" -H "$token" "$address"
	else # Alpine's, which cannot verify; the token may list pods
		wget -q -T 10 -O - --no-check-certificate --header "$token" "$address"
	fi
}

fail() {
	echo "error: no node can pull $IMAGE; build it from Dockerfile.control, then push it and set global.imageRegistry," \
		"or load it into the nodes"
	exit 1
}

unanswered=0
absent=0
looks=0
while [ $looks -lt 100 ]; do # 200 seconds and more
	looks=$((looks + 1))
	answer=$(ask 2>/dev/null | tr -d ' \n')
	failing=no
	case $answer in
	'') unanswered=$((unanswered + 1)) ;;
	*'"running":{'* | *'"terminated":{'*) exit 0 ;;
	*'"reason":"ErrImageNeverPull"'* | *'"reason":"InvalidImageName"'*) absent=$((absent + 1)) ;;
	*'"reason":"ErrImagePull"'* | *'"reason":"ImagePullBackOff"'*)
		failing=yes
		case $answer in # else a slow or busy registry, which the node asks again
		*[Nn]ot[Ff]ound* | *nosuchhost* | *manifestunknown* | *denied* | *unauthorized*) absent=$((absent + 1)) ;;
		esac
		;;
	esac
	if [ $unanswered -ge 5 ]; then
		echo "warning: the API server does not say whether $IMAGE is there"
		exit 0
	fi
	[ $absent -lt 5 ] || fail
	sleep 2
done
[ $failing = no ] || fail
