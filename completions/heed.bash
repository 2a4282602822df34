# Completion for heed in bash.

_heed()
{
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
    local commands="attend scan explain forms random info convert tokenize run logits perplexity compare eval tune calibrate patterns limits embed map cache train finetune predict recipe sculpt denoise bench help"
    COMPREPLY=()

    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "$commands --help --version" -- "$word"))
        return
    fi
    case $before in
    --kv) COMPREPLY=($(compgen -W "f32 f16 bf16 q8 q4 q3 q2 rq8 rq4 rq3 rq2" -- "$word")) && return ;;
    --type | --embedding)
        if [[ $command == convert ]]; then
            COMPREPLY=($(compgen -W "keep f32 f16 bf16 q8_0 q5_1 q5_0 q4_1 q4_0 q6_k q5_k q4_k q3_k q2_k iq4_nl iq4_xs
                mxfp4" -- "$word"))
        else
            COMPREPLY=($(compgen -W "f32 f16 bf16" -- "$word"))
        fi
        return
        ;;
    --q-type) COMPREPLY=($(compgen -W "f32 f16 bf16" -- "$word")) && return ;;
    --isa) COMPREPLY=($(compgen -W "auto portable avx2 avx512 neon" -- "$word")) && return ;;
    --kernel) COMPREPLY=($(compgen -W "auto flash rows sparse decode gather" -- "$word")) && return ;;
    --cache) COMPREPLY=($(compgen -W "f32 f16 bf16 q8 q4 q3 q2 rq8 rq4 rq3 rq2" -- "$word")) && return ;;
    --cache-file) COMPREPLY=($(compgen -d -- "$word") $(compgen -W "auto" -- "$word")) && return ;;
    --pooling) COMPREPLY=($(compgen -W "mean cls last" -- "$word")) && return ;;
    --truncate) COMPREPLY=($(compgen -W "tail head middle error" -- "$word")) && return ;;
    --suite) COMPREPLY=($(compgen -W "quick long" -- "$word")) && return ;;
    --resume | --picture | --grid | --params) COMPREPLY=($(compgen -f -- "$word")) && return ;;
    -m | --model | -f | --file) COMPREPLY=($(compgen -f -- "$word")) && return ;;
    -o | --output) COMPREPLY=($(compgen -f -- "$word")) && return ;;
    --threads | --layer | --layers | --top | --seed | --shape | --spec | --rounds | --only) return ;;
    esac

    case $command in
    attend)
        COMPREPLY=($(compgen -W "--output --weights --backward --kv --threads --isa --kernel --layer --entropy --key-sums
            --top --json --help" -- "$word"))
        [[ $word == -* ]] || COMPREPLY=($(compgen -f -X '!*.safetensors' -- "$word") $(compgen -d -- "$word"))
        ;;
    scan)
        COMPREPLY=($(compgen -W "--output --backward --threads --isa --layer --layers --json --help" -- "$word"))
        [[ $word == -* ]] || COMPREPLY=($(compgen -f -X '!*.safetensors' -- "$word") $(compgen -d -- "$word"))
        ;;
    explain)
        COMPREPLY=($(compgen -W "--shape --q-type --kv --threads --isa --kernel --layer --backward --weights --json
            --help" -- "$word"))
        ;;
    forms)
        if [[ $word == -* ]]; then
            COMPREPLY=($(compgen -W "--json --reference --help" -- "$word"))
        else # stages stand before a colon at the start of a line, forms two spaces in
            COMPREPLY=($(compgen -W "$(heed forms 2>/dev/null |
                sed -n 's/^\([a-z]*\):.*/\1/p; s/^  \([a-z0-9_]\{1,\}\) .*/\1/p')" -- "$word"))
        fi
        ;;
    random)
        COMPREPLY=($(compgen -W "--shape --spec --type --backward --seed --help" -- "$word"))
        [[ $word == -* ]] || COMPREPLY=($(compgen -f -- "$word"))
        ;;
    info)
        COMPREPLY=($(compgen -W "--tensors --metadata --json --help" -- "$word"))
        [[ $word == -* ]] || COMPREPLY=($(compgen -f -- "$word"))
        ;;
    convert)
        COMPREPLY=($(compgen -W "--type --embedding --threads --json --help" -- "$word"))
        [[ $word == -* ]] || COMPREPLY=($(compgen -f -- "$word"))
        ;;
    recipe)
        COMPREPLY=($(compgen -W "--list --all --quick --no-record --seeds --model --folder --keep --threads --json --help" -- "$word"))
        [[ $word == -* ]] || COMPREPLY=($(compgen -W "$(cd recipes 2>/dev/null && printf '%s ' *.json | sed 's/\.json / /g')" -- "$word"))
        ;;
    tokenize)
        COMPREPLY=($(compgen -W "--model --file --no-special --parse-special --chat --decode --train --vocab --output --json --help" -- "$word"))
        [[ $word == -* ]] || COMPREPLY=($(compgen -f -- "$word"))
        ;;
    run)
        COMPREPLY=($(compgen -W "--model --prompt --file --tokens --chat --system --attention --params --compare --session --passage --passage-cache --selective --selective-unit --selective-by --selective-model --question
            --cache --cache-ram --cache-file --exact --threads --temperature --top-k --top-p --min-p --repetition --frequency --presence --penalty-window --seed
            --stop --context --truncate --parse-special --json --help" -- "$word"))
        ;;
    sculpt)
        COMPREPLY=($(compgen -W "--model --prompt --file --question --answer --fragment --keep --latest --calls --tokens --attention --params --cache
            --cache-ram --cache-file --exact --threads --json --help" -- "$word"))
        ;;
    logits)
        COMPREPLY=($(compgen -W "--model --prompt --file --top --positions --attention --params --cache --cache-ram --cache-file --exact --threads
            --parse-special --json --help" -- "$word"))
        ;;
    cache)
        COMPREPLY=($(compgen -W "show --model --prompt --file --output --context --attention --params --cache --cache-ram --cache-file --exact --threads
            --parse-special --json --help" -- "$word"))
        [[ $word == -* ]] || COMPREPLY+=($(compgen -f -- "$word"))
        ;;
    map)
        COMPREPLY=($(compgen -W "--model --prompt --file --output --layer --head --grid --tokens --summary --attention --params --cache
            --cache-ram --cache-file --exact --threads --truncate --parse-special --json --help" -- "$word"))
        ;;
    compare)
        COMPREPLY=($(compgen -W "--model --prompt --file --spec --context --attention --params --cache --cache-ram --cache-file --exact --threads --parse-special --json --help" -- "$word"))
        [[ $word == -* ]] || COMPREPLY=($(compgen -f -- "$word"))
        ;;
    eval)
        COMPREPLY=($(compgen -W "--model --spec --specs --suite --tasks --length --seed --apart --resume --picture --grid --attention --params --cache
            --exact --threads --json --csv --help" -- "$word"))
        ;;
    tune)
        COMPREPLY=($(compgen -W "--model --budget --method --policy --type --length --seed --trials --apart --resume --heads --exact --threads --json --help" -- "$word"))
        ;;
    denoise)
        COMPREPLY=($(compgen -W "--steps --guidance --reuse --count --label --seed --output --threads --json --help" -- "$word"))
        [[ $word == -* ]] || COMPREPLY=($(compgen -d -- "$word"))
        ;;
    calibrate)
        COMPREPLY=($(compgen -W "--model --attention --output --tokens --window --exact --threads --parse-special --json --help" -- "$word"))
        [[ $word == -* ]] || COMPREPLY=($(compgen -f -- "$word"))
        ;;
    patterns)
        COMPREPLY=($(compgen -W "--model --block --blocks --tokens --window --heads --exact --threads --parse-special --json --help" -- "$word"))
        [[ $word == -* ]] || COMPREPLY=($(compgen -f -- "$word"))
        ;;
    limits)
        COMPREPLY=($(compgen -W "--model --prompt --file --tokens --top --temperature --attention --params --cache --cache-ram --cache-file --exact --threads --parse-special --json --help" \
            -- "$word"))
        ;;
    perplexity)
        COMPREPLY=($(compgen -W "--model --context --stream --score --attention --params --cache --cache-ram --cache-file --exact --threads --parse-special --json --help" \
            -- "$word"))
        [[ $word == -* ]] || COMPREPLY=($(compgen -f -- "$word"))
        ;;
    embed)
        COMPREPLY=($(compgen -W "--model --prompt --file --pooling --raw --tokens --truncate --exact --threads
            --parse-special --json --help" -- "$word"))
        ;;
    train)
        COMPREPLY=($(compgen -W "--output --set --resume --stop-after --show --threads --keys --json --help" -- "$word"))
        [[ $word == -* ]] || COMPREPLY=($(compgen -f -- "$word"))
        ;;
    finetune)
        COMPREPLY=($(compgen -W "--model --output --set --resume --stop-after --show --threads --keys --json --help" -- "$word"))
        [[ $word == -* ]] || COMPREPLY=($(compgen -f -- "$word"))
        ;;
    predict)
        COMPREPLY=($(compgen -W "--model --prompt --file --picture --map --layer --head --threads --json --help" -- "$word"))
        ;;
    bench)
        COMPREPLY=($(compgen -W "attention decode cache backward sparse forms statistics product model scan train peak --model --threads --rounds --isa --kernel
            --only --long --json --help" -- "$word"))
        ;;
    help) COMPREPLY=($(compgen -W "$commands" -- "$word")) ;;
    esac
}
complete -o filenames -F _heed heed
