{{/* What no API server accepts of a pod's parts, though its schema does: Helm would end half-way, with services, Redis and generators
created; (dict "place" "trainer" "own" roleValues "volumes" (list "names of the chart's own")). */}}
{{- define "rollcast.podRules" -}}
{{- $place := .place -}}
{{- range $index, $toleration := .own.tolerations -}}
{{- include "rollcast.tolerationRules" (list (printf "%s.tolerations[%d]" $place $index) $toleration) -}}
{{- end -}}
{{- $volumes := .volumes -}}
{{- range $index, $volume := .own.extraVolumes -}}
{{- $volumes = append $volumes (get $volume "name") -}}
{{- $sources := keys (omit $volume "name") -}}
{{- if ne (len $sources) 1 -}}
{{- fail (printf "%s.extraVolumes[%d] (%s) has %d sources: a volume has exactly one; give it one, such as emptyDir: {}" $place $index (get $volume "name") (len $sources)) -}}
{{- end -}}
{{- end -}}
{{- if .volumes -}}
{{- include "rollcast.mountRules" (list (printf "%s.extraVolumeMounts" $place) .own.extraVolumeMounts $place $volumes) -}}
{{- end -}}
{{- include "rollcast.variableRules" (list (printf "%s.extraEnv" $place) .own.extraEnv) -}}
{{- include "rollcast.amountRules" (list (printf "%s.resources" $place) .own.resources) -}}
{{- range $field := list "extraContainers" "extraInitContainers" -}}
{{- range $index, $container := index $.own $field -}}
{{- $path := printf "%s.%s[%d]" $place $field $index -}}
{{- if not (get $container "image") -}}
{{- fail (printf "%s.image is missing; give it" $path) -}}
{{- end -}}
{{- if $.volumes -}}
{{- include "rollcast.mountRules" (list (printf "%s.volumeMounts" $path) (get $container "volumeMounts" | default list) $place $volumes) -}}
{{- end -}}
{{- include "rollcast.variableRules" (list (printf "%s.env" $path) (get $container "env" | default list)) -}}
{{- $resources := get $container "resources" | default dict -}}
{{- include "rollcast.quantitiesAsText" (pick $resources "requests" "limits") -}}
{{- include "rollcast.amountRules" (list (printf "%s.resources" $path) $resources) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* (list "path" toleration). */}}
{{- define "rollcast.tolerationRules" -}}
{{- $path := index . 0 -}}
{{- $operator := get (index . 1) "operator" | default "Equal" -}}
{{- if and (not (get (index . 1) "key")) (ne $operator "Exists") -}}
{{- fail (printf "%s.key is empty: with operator %s a toleration needs one; give it, or set operator: Exists, which tolerates every taint" $path $operator) -}}
{{- end -}}
{{- if and (get (index . 1) "value") (eq $operator "Exists") -}}
{{- fail (printf "%s.value = %s: operator Exists compares no value; remove it, or set operator: Equal" $path (get (index . 1) "value")) -}}
{{- end -}}
{{- if and (hasKey (index . 1) "tolerationSeconds") (ne (get (index . 1) "effect") "NoExecute") -}}
{{- fail (printf "%s.tolerationSeconds: it counts with effect: NoExecute alone; set that, or remove it" $path) -}}
{{- end -}}
{{- end -}}

{{/* (list "path" mounts "role" (list volumeNames)). */}}
{{- define "rollcast.mountRules" -}}
{{- $path := index . 0 -}}
{{- $place := index . 2 -}}
{{- $volumes := index . 3 -}}
{{- range $index, $mount := index . 1 -}}
{{- if not (has (get $mount "name") $volumes) -}}
{{- fail (printf "%s[%d].name = %s: no volume has this name; add it to %s.extraVolumes" $path $index (get $mount "name") $place) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* (list "path" variables). */}}
{{- define "rollcast.variableRules" -}}
{{- $path := index . 0 -}}
{{- range $index, $variable := index . 1 -}}
{{- if and (get $variable "value") (hasKey $variable "valueFrom") -}}
{{- fail (printf "%s[%d] (%s) has value and valueFrom; remove one" $path $index (get $variable "name")) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* (list "path" resources), with amounts as texts. Devices are not shared: their request is their limit. */}}
{{- define "rollcast.amountRules" -}}
{{- $path := index . 0 -}}
{{- $limits := (index . 1).limits | default dict -}}
{{- range $name, $amount := (index . 1).requests -}}
{{- $limit := get $limits $name -}}
{{- $isDevice := and (contains "/" $name) (not (contains "kubernetes.io/" $name)) -}}
{{- if and $isDevice (ne $amount $limit) -}}
{{- fail (printf "%s.requests.%s = %s: a device has no other request than its limit; give it as limits.%s alone" $path $name $amount $name) -}}
{{- end -}}
{{- if and $limit (gt (include "rollcast.amount" $amount | float64) (include "rollcast.amount" $limit | float64)) -}}
{{- fail (printf "%s.requests.%s = %s: exceeds limits.%s %s; lower it or raise that" $path $name $amount $name $limit) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* (list "path" registry). A node that cannot read an image's name shows InvalidImageName, minutes later. */}}
{{- define "rollcast.registryRules" -}}
{{- $registry := index . 1 | default "" -}}
{{- if not (regexMatch "^(([A-Za-z0-9.-]+|\\[[0-9A-Fa-f:]+\\])(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*)?$" $registry) -}}
{{- fail (printf "%s = %s: is not a registry; give HOST, HOST:PORT or HOST/PATH, without https:// and without a slash at the end" (index . 0) $registry) -}}
{{- end -}}
{{- end -}}

{{/* (list "path" imageValues). */}}
{{- define "rollcast.imageRules" -}}
{{- $path := index . 0 -}}
{{- $repository := (index . 1).repository -}}
{{- include "rollcast.registryRules" (list (printf "%s.registry" $path) (index . 1).registry) -}}
{{- if not (regexMatch "^(([A-Za-z0-9.-]+|\\[[0-9A-Fa-f:]+\\])(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$" $repository) -}}
{{- fail (printf "%s.repository = %s: is not a repository, which is in small letters; a tag goes into %s.tag, a digest into %s.digest" $path $repository $path $path) -}}
{{- end -}}
{{- end -}}
