{{/* The role of an environment's pods, and its name among those of the release; (list . environment). */}}
{{- define "rollcast.environmentRole" -}}
env-{{ (index . 1).name }}
{{- end -}}

{{- define "rollcast.environmentName" -}}
{{ include "rollcast.fullname" (index . 0) }}-{{ include "rollcast.environmentRole" . }}
{{- end -}}

{{/* Its address for generators, without a path; (list . environment). */}}
{{- define "rollcast.environmentUrl" -}}
http://{{ include "rollcast.environmentName" . }}:{{ int (index . 1).port }}
{{- end -}}

{{/* How it is asked whether the server is there; (list environment). */}}
{{- define "rollcast.environmentProbe" -}}
{{- with (index . 0).readinessPath -}}
httpGet: {path: {{ . | quote }}, port: env}
{{- else -}}
tcpSocket: {port: env}
{{- end -}}
{{- end -}}

{{/* The servers that config.tasks.environments names, as {"servers": [...]}: where, address, port, variable of the token, and the
first label of the host. What is no map, and what is no name of a variable, is refused by the run file's own rules. */}}
{{- define "rollcast.environmentServers" -}}
{{- $tasks := kindIs "map" .Values.config.tasks | ternary .Values.config.tasks dict -}}
{{- $found := list -}}
{{- range $index, $environment := kindIs "slice" $tasks.environments | ternary $tasks.environments list -}}
{{- if kindIs "map" $environment -}}
{{- $place := printf "config.tasks.environments[%d]" $index -}}
{{- $servers := list (dict "place" $place "of" $environment) -}}
{{- range $number, $server := kindIs "slice" $environment.mcp | ternary $environment.mcp list -}}
{{- if kindIs "map" $server -}}
{{- $servers = append $servers (dict "place" (printf "%s.mcp[%d]" $place $number) "of" $server) -}}
{{- end -}}
{{- end -}}
{{- range $servers -}}
{{- if kindIs "string" .of.url -}}
{{- $host := regexFind "^[^/:?#.]*" (regexReplaceAll "^https?://" .of.url "") -}}
{{- $found = append $found (dict "place" .place "url" .of.url "port" (include "rollcast.portOf" .of.url | int)
    "variable" (regexFind "^[A-Za-z_][A-Za-z0-9_]*$" (toString (.of.token_variable | default ""))) "host" $host) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "servers" $found | toJson -}}
{{- end -}}
