#include <heed/base.h>
#include <stdarg.h>
#include <stdio.h>

static _Thread_local char message[1024];

const char *heed_message(void)
{
    return message;
}

heed_status heed_fail(heed_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return status;
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *heed_version(void)
{
    return TEXT(HEED_VERSION_MAJOR) "." TEXT(HEED_VERSION_MINOR) "." TEXT(HEED_VERSION_PATCH);
}
